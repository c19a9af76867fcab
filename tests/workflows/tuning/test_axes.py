"""Candidates are the combinations that a method supports, each once; an axis is a row."""

from exporter.schedule.methods import METHODS, check_choices
from exporter.schedule.plan import ScheduleSettings
from exporter.vocabulary import Method
from exporter.workflows.recipes.amount import MacShare, Rho
from exporter.workflows.tuning.axes import AXES, UNPRUNED, Candidate, candidates, pinned, suited, ways
from tests.vits import make_vit


def test_every_candidate_is_one_that_a_method_supports() -> None:
    found = candidates()
    assert len(found) == len(set(found))
    for each in found:
        check_choices(each.method, each.scorer, each.reduce)
        assert ScheduleSettings(**each.how).planned_by == each.method
        assert (each.alpha is None) or each.scorer == "fused"
    assert {each.method for each in found} == set(AXES["method"])
    assert {each.mac_reduction for each in found} == set(AXES["mac_reduction"])


def test_no_combination_is_missing() -> None:
    for method in AXES["method"]:
        for scorer in set(METHODS[method].scorers) & set(AXES["scorer"]):
            assert any((each.method, each.scorer) == (method, scorer) for each in candidates()), (
                method,
                scorer,
            )


def test_a_head_that_reads_no_class_token_is_scored_by_the_attention_received() -> None:
    pooled = make_vit("pooled").spec
    scorers = {each.scorer for each in candidates(suited(AXES, pooled))}
    assert scorers == {"pairs", "fused", "received", "inter", "random"}
    assert suited(AXES, make_vit().spec) == AXES
    axes = pinned(ScheduleSettings("intra", method=Method.STAR), None)
    assert suited(axes, pooled) == axes  # what is pinned is refused where it is planned


def test_a_shorter_axis_gives_fewer_candidates() -> None:
    few = candidates({**AXES, "method": (Method.TOME,), "mac_reduction": (0.3, 0.4)})
    assert few == (Candidate(mac_reduction=0.3), Candidate(mac_reduction=0.4))


def test_what_is_pinned_has_one_value() -> None:
    found = candidates(pinned(ScheduleSettings("fused", method=Method.STAR), Rho(0.7)))
    assert {(each.method, each.scorer, each.rho, each.mac_reduction) for each in found} == {
        (Method.STAR, "fused", 0.7, None)
    }
    assert {each.reduce for each in found} == set(AXES["reduce"])
    shares = candidates(pinned(ScheduleSettings(), MacShare(0.33)))
    assert {each.mac_reduction for each in shares} == {0.33}
    assert len(shares) == len(candidates()) / len(AXES["mac_reduction"])
    assert pinned(ScheduleSettings(), None) == AXES


def test_other_weights_are_tried_unpruned_too_and_trained_ones_only_as_they_were_trained() -> None:
    trained = Candidate(weights="tuned", given=True, method=Method.STAR, scorer="intra", reduce="drop")
    axes = pinned(ScheduleSettings(method=Method.TOME), MacShare(0.3), ("small", "tuned"))
    assert candidates(axes, [trained]) == (
        trained,
        Candidate(weights="small"),
        Candidate(mac_reduction=0.3),
        Candidate(weights="small", mac_reduction=0.3),
    )


def test_a_way_has_all_its_shares() -> None:
    groups = list(ways(candidates()))
    assert all(len(group) == len(AXES["mac_reduction"]) for group in groups)
    assert sum(map(len, groups)) == len(candidates())


def test_a_candidate_says_what_it_is() -> None:
    tome = Candidate(mac_reduction=0.4)
    assert not tome.calibrated
    assert tome.on("openvino-int8").label == "tome, pairs, merge-weighted, 40% saved, openvino-int8"
    fused = Candidate(method=Method.STAR, scorer="fused", reduce="drop", alpha=0.5, mac_reduction=0.375)
    assert fused.calibrated
    assert fused.label == "star, fused, drop, α 0.5, 37.5% saved"
    assert tome.on("x").on("") == tome
    assert (UNPRUNED.on("x").label, UNPRUNED.prunes) == ("unpruned, x", False)
    assert Candidate(weights="small", rho=0.7).label == "small, tome, pairs, merge-weighted, rho 0.7"
    assert Candidate(weights="tuned", given=True).label.endswith("as given")
