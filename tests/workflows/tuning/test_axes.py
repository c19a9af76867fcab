"""Candidates are the combinations that a method supports, each once; an axis is a row."""

from exporter.schedule.methods import METHODS, check_choices
from exporter.vocabulary import Method
from exporter.workflows.tuning.axes import AXES, Candidate, candidates, ways


def test_every_candidate_is_one_that_a_method_supports() -> None:
    found = candidates()
    assert len(found) == len(set(found))
    for each in found:
        check_choices(each.method, each.scorer, each.reduce)
        assert each.scoring.planned_by == each.method
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


def test_a_shorter_axis_gives_fewer_candidates() -> None:
    few = candidates({**AXES, "method": (Method.TOME,), "mac_reduction": (0.3, 0.4)})
    assert few == (
        Candidate(Method.TOME, "pairs", "merge-weighted", None, 0.3),
        Candidate(Method.TOME, "pairs", "merge-weighted", None, 0.4),
    )


def test_a_way_has_all_its_shares() -> None:
    groups = list(ways(candidates()))
    assert all(len(group) == len(AXES["mac_reduction"]) for group in groups)
    assert sum(map(len, groups)) == len(candidates())


def test_a_candidate_says_what_it_is() -> None:
    tome = Candidate(Method.TOME, "pairs", "merge-weighted", None, 0.4)
    assert not tome.calibrated
    assert tome.on("openvino-int8").label == "tome, pairs, merge-weighted, 40% saved, openvino-int8"
    fused = Candidate(Method.STAR, "fused", "drop", 0.5, 0.35)
    assert fused.calibrated
    assert fused.label == "star, fused, drop, α 0.5, 35% saved"
    assert tome.on("x").on("") == tome
