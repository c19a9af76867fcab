"""Candidates are the combinations that a method supports, each once; an axis is a row."""

from dataclasses import replace

import pytest

from exporter.errors import RecipeError
from exporter.schedule.methods import METHODS, check_choices
from exporter.schedule.prune import Prune
from exporter.vocabulary import Method
from exporter.workflows.tuning.ways import AXES, UNPRUNED, Candidate, candidates, ways_of
from tests.vits import make_vit

FREE, SPEC = Prune(), make_vit().spec


def test_every_candidate_is_one_that_a_method_supports_and_none_is_missing() -> None:
    found = candidates(SPEC, FREE)
    assert len(found) == len(set(found))
    for each in found:
        check_choices(each.method, each.scorer, each.reduce)
        assert Prune(**each.how).planned_by == each.method
        assert each.alpha is None or each.scorer == "fused"
    pairs = {(each.method, each.scorer) for each in found}
    assert pairs == {
        (method, scorer)
        for method in AXES["method"]
        for scorer in AXES["scorer"]
        if scorer in METHODS[method].scorers
    }
    assert {each.mac_reduction for each in found} == set(AXES["mac_reduction"])


def test_a_head_that_reads_no_class_token_is_scored_by_the_attention_received() -> None:
    pooled = make_vit("pooled").spec
    assert {each.scorer for each in candidates(pooled, FREE)} == {
        "token-pairs",
        "fused",
        "received",
        "inter",
        "random",
    }
    pinned = candidates(pooled, Prune("intra", method=Method.STAR))
    assert {each.scorer for each in pinned} == {"intra"}  # what is pinned is refused where it is planned


def test_what_is_pinned_has_one_value() -> None:
    found = candidates(SPEC, Prune("fused", method=Method.STAR, rho=0.7))
    assert {(each.method, each.scorer, each.rho, each.mac_reduction) for each in found} == {
        (Method.STAR, "fused", 0.7, None)
    }
    assert {each.reduce for each in found} == set(AXES["reduce"])
    shares = candidates(SPEC, Prune(mac_reduction=0.33))
    assert {each.mac_reduction for each in shares} == {0.33}
    assert len(shares) * len(AXES["mac_reduction"]) == len(candidates(SPEC, FREE))
    with pytest.raises(RecipeError, match="settings that do not go together"):
        candidates(SPEC, Prune("pairs", method=Method.STAR, alpha=0.2))


def found_by(counts: str) -> tuple[Candidate, ...]:
    return candidates(SPEC, Prune(counts=counts))


def test_counts_that_are_pinned_go_with_every_candidate() -> None:
    for scoring in (Prune(counts="geometric"), Prune(counts="acs", method=Method.STAR)):
        found = candidates(SPEC, scoring)
        assert Method.STAR in {each.method for each in found}
        assert all(replace(FREE, **each.settings).counted_by == scoring.counts for each in found)
    both = {Method.MATCHING, Method.STAR}
    assert {each.method for each in found_by("geometric")} == both
    assert {each.method for each in found_by("geometric") if each.scorer == "token-pairs"} == {
        Method.MATCHING
    }
    pinned = candidates(SPEC, Prune("token-pairs", method=Method.STAR, counts="few"))
    assert {each.method for each in pinned} == {Method.STAR}
    needy = {each.scorer for each in found_by("geometric") if each.calibrated}
    assert needy == {"fused", "inter"}  # the rates of ACS are not read
    assert Candidate(counts="few", rho=0.7).label.endswith("counts few, rho 0.7")
    with pytest.raises(RecipeError, match=r"counts \| got search for tune"):
        candidates(SPEC, Prune(counts="search"))


def test_other_weights_are_tried_unpruned_too_and_trained_ones_only_as_they_were_trained() -> None:
    trained = Candidate(weights="tuned", given=True, method=Method.STAR, scorer="intra", reduce="drop")
    weights = {"small": None, "tuned": trained}
    assert candidates(SPEC, Prune(method=Method.MATCHING, mac_reduction=0.3), weights) == (
        Candidate(mac_reduction=0.3),
        Candidate(weights="small"),
        Candidate(weights="small", mac_reduction=0.3),
        trained,
    )


def test_a_way_has_all_its_shares_the_smallest_first() -> None:
    ways = ways_of(candidates(SPEC, FREE))
    assert len(ways) == 17
    assert all([each.mac_reduction for each in way] == list(AXES["mac_reduction"]) for way in ways)
    assert ways_of([UNPRUNED, Candidate(mac_reduction=0.1)]) == [(UNPRUNED,), (Candidate(mac_reduction=0.1),)]


def test_a_candidate_says_what_it_is() -> None:
    plain = Candidate(mac_reduction=0.4)
    assert not plain.calibrated
    assert (
        plain.on("openvino-int8").label == "matching, token-pairs, merge-weighted, 40% saved, openvino-int8"
    )
    fused = Candidate(method=Method.STAR, scorer="fused", reduce="drop", alpha=0.5, mac_reduction=0.375)
    assert fused.calibrated
    assert fused.label == "star, fused, drop, α 0.5, 37.5% saved"
    assert (UNPRUNED.on("x").label, UNPRUNED.prunes, UNPRUNED.calibrated) == ("unpruned, x", False, False)
    assert (
        Candidate(weights="small", rho=0.7).label == "small, matching, token-pairs, merge-weighted, rho 0.7"
    )
    assert Candidate(weights="tuned", given=True).label.endswith("as given")
