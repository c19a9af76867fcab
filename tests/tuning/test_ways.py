"""Candidates are the combinations that a method supports, each once; an axis is a row."""

import pytest

from exporter.core.base.errors import RecipeError
from exporter.core.base.records import ModelSpec
from exporter.core.base.vocabulary import Method
from exporter.core.schedule.methods import METHODS
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.tuning.ways import AXES, SHARES, UNPRUNED, Candidate, ways_of
from tests.vits import make_vit

FREE, SPEC = Prune(), make_vit().spec


def prunes_of(pinned: Prune, spec: ModelSpec = SPEC) -> list[Prune]:
    """What the candidates of all ways prune by."""
    return [
        each.prune
        for way in ways_of(spec, pinned)
        for each in way
        if each.prune is not None
    ]


def test_every_candidate_is_one_that_a_method_supports_and_none_is_missing() -> None:
    found = [each for way in ways_of(SPEC, FREE) for each in way]
    assert len(found) == len({each.label for each in found}) == len(set(found))
    pairs = set()
    for each in prunes_of(FREE):
        assert (
            each.method is not None
            and each.scorer is not None
            and each.reduce is not None
        )
        resolve(each)
        assert each.alpha is None or each.scorer == "fused"
        pairs.add((each.method, each.scorer))
    assert pairs == {
        (method, scorer)
        for method in AXES["method"]
        for scorer in AXES["scorer"]
        if scorer in METHODS[method].scorers
    }


def test_a_head_that_reads_no_class_token_is_scored_by_the_attention_received() -> None:
    pooled = make_vit("pooled").spec
    scorers = {"token-pairs", "fused", "received", "inter", "random"}
    assert {each.scorer for each in prunes_of(FREE, pooled)} == scorers
    pinned = prunes_of(Prune("intra", method=Method.STAR), pooled)
    # what is pinned is refused where it is planned
    assert {each.scorer for each in pinned} == {"intra"}


def test_what_is_pinned_has_one_value() -> None:
    found = prunes_of(Prune("fused", method=Method.STAR, rho=0.7))
    assert {
        (each.method, each.scorer, each.rho, each.mac_reduction) for each in found
    } == {(Method.STAR, "fused", 0.7, None)}
    assert {each.reduce for each in found} == set(AXES["reduce"])
    shares = prunes_of(Prune(mac_reduction=0.33, seed=7))
    assert {(share.mac_reduction, share.seed) for share in shares} == {(0.33, 7)}
    assert len(shares) == len(ways_of(SPEC, FREE))
    with pytest.raises(RecipeError, match="settings that do not go together"):
        ways_of(SPEC, Prune("pairs", method=Method.STAR, alpha=0.2))


def test_counts_that_are_pinned_go_with_every_candidate() -> None:
    for pinned in (Prune(counts="stretched"), Prune(counts="acs", method=Method.STAR)):
        found = prunes_of(pinned)
        assert Method.STAR in {each.method for each in found}
        assert all(each.counts == pinned.counts for each in found)
    both = {Method.MATCHING, Method.STAR}
    stretched = prunes_of(Prune(counts="stretched"))
    assert {each.method for each in stretched} == both
    assert {each.method for each in stretched if each.scorer == "token-pairs"} == {
        Method.MATCHING
    }
    with pytest.raises(RecipeError, match="settings that do not go together"):
        prunes_of(Prune("token-pairs", method=Method.STAR, counts="stretched"))
    needy = {each.scorer for each in stretched if Candidate(each).calibrated}
    assert needy == {"fused", "inter"}  # the rates of ACS are not read
    assert Candidate(Prune(counts="stretched", rho=0.7)).label.endswith(
        "counts stretched, rho 0.7"
    )


def test_other_weights_are_tried_unpruned_too_and_trained_ones_only_as_they_were_trained() -> (
    None
):
    trained = Candidate(Prune("intra", method=Method.STAR), "tuned", given=True)
    weights = {"small": None, "tuned": trained}
    found = ways_of(SPEC, Prune(method=Method.MATCHING, mac_reduction=0.3), weights)
    words = "matching, token-pairs, merge-weighted, 30% saved"
    assert [[each.label for each in way] for way in found] == [
        [words],
        ["small, unpruned"],
        [f"small, {words}"],
        ["tuned, star, intra, drop, as given"],
    ]


def test_a_way_has_all_its_shares_the_smallest_first() -> None:
    ways = ways_of(SPEC, FREE)
    assert len(ways) == 17
    assert all(
        [each.prune and each.prune.mac_reduction for each in way] == list(SHARES)
        for way in ways
    )


def test_a_candidate_says_what_it_is() -> None:
    plain = Candidate(Prune(mac_reduction=0.4))
    assert not plain.calibrated
    assert (
        plain.on("openvino-int8").label
        == "matching, token-pairs, merge-weighted, 40% saved, openvino-int8"
    )
    fused = Candidate(Prune("fused", alpha=0.5, mac_reduction=0.375))
    assert fused.calibrated
    assert fused.label == "star, fused, drop, α 0.5, 37.5% saved"
    assert (UNPRUNED.on("x").label, UNPRUNED.calibrated) == ("unpruned, x", False)
    assert Candidate(FREE, "tuned", given=True).label.endswith("as given")
