"""The ways to prune that a search tries."""

import pytest

from exporter.core.base.errors import RecipeError
from exporter.core.base.vocabulary import Method
from exporter.core.schedule.prune import Prune
from exporter.tuning.ways import SHARES, TRIED, UNPRUNED, Candidate, ways_of

FREE = Prune()


def prunes_of(pinned: Prune) -> list[Prune]:
    """What the first candidates of all ways prune by."""
    return [way[0].prune for way in ways_of(pinned) if way[0].prune is not None]


def test_methods_that_merge_are_tried_at_their_defaults_and_one_merge() -> None:
    labels = [way[0].on("").label for way in ways_of(Prune(mac_reduction=0.4))]
    assert labels == [
        "matching, 40% saved",
        "matching, merges 1, 40% saved",
        "tome, 40% saved",
    ]


def test_what_is_pinned_stands_in_every_way_that_it_goes_with() -> None:
    star = prunes_of(Prune("fused", method=Method.STAR, rho=0.7))
    assert star == [Prune("fused", method=Method.STAR, rho=0.7)]
    assert {how.method for how in prunes_of(Prune("intra"))} == {
        Method.STAR,
        Method.A_STAR,
    }
    merging = prunes_of(Prune(merges=2, mac_reduction=0.3))
    assert merging == [Prune(method=Method.MATCHING, merges=2, mac_reduction=0.3)]
    shares = prunes_of(Prune(mac_reduction=0.33, seed=7))
    assert {(how.mac_reduction, how.seed) for how in shares} == {(0.33, 7)}
    with pytest.raises(RecipeError, match="settings that do not go together"):
        ways_of(Prune("pairs", method=Method.STAR, alpha=0.2, merges=2))


def test_other_weights_are_tried_unpruned_too_and_trained_ones_only_as_they_were_trained() -> (
    None
):
    trained = Candidate(Prune("intra", method=Method.STAR), "tuned", given=True)
    weights = {"small": None, "tuned": trained}
    found = ways_of(Prune(method=Method.TOME, mac_reduction=0.3), weights)
    words = "tome, 30% saved"
    assert [[each.label for each in way] for way in found] == [
        [words],
        ["small, unpruned"],
        [f"small, {words}"],
        ["tuned, star, intra, as given"],
    ]


def test_a_way_has_all_its_shares_the_smallest_first() -> None:
    ways = ways_of(FREE)
    assert len(ways) == len(TRIED)
    assert all(
        [each.prune and each.prune.mac_reduction for each in way] == list(SHARES)
        for way in ways
    )


def test_a_candidate_says_what_it_is() -> None:
    plain = Candidate(Prune(mac_reduction=0.4))
    assert not plain.calibrated
    assert plain.on("openvino-int8").label == "matching, 40% saved, openvino-int8"
    fused = Candidate(Prune("fused", alpha=0.5, mac_reduction=0.375))
    assert fused.calibrated
    assert fused.label == "star, fused, α 0.5, 37.5% saved"
    assert (UNPRUNED.on("x").label, UNPRUNED.calibrated) == ("unpruned, x", False)
    assert Candidate(FREE, "tuned", given=True).label.endswith("as given")
