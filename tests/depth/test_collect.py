"""Three walks from the trained model; every sample is written at once, and a killed run ends with the same ones."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.base.errors import ArtefactError
from exporter.core.base.vocabulary import UnitType
from exporter.core.vit.protocol import PrunableViT
from exporter.depth.choose import Bookmark, Stage, Train
from exporter.depth.collect import (
    Evaluate,
    Measured,
    Tally,
    collect,
    read_samples,
    steps_of,
)
from exporter.depth.plan import ChoiceSettings
from exporter.models.identity import Identity
from tests.depth.models import seeded_vit
from tests.depth.training import nudge
from tests.power_cuts import PowerCutError

ATTENTION, ACTIVATION = UnitType.ATTENTION, UnitType.ACTIVATION
SETTINGS = ChoiceSettings(units=3)


def evaluate(vit: PrunableViT) -> Tally:
    """An accuracy that any other weights or units would change."""
    return Tally(int(vit.weights_sha256[:6], 16) % 1000, 1000)


def run(
    folder: Path, train: Train, measure: Evaluate = evaluate, name: str = "run"
) -> tuple[Measured, ...]:
    bookmark = Bookmark(folder / "last.safetensors", Identity("vit", "vit"), name)
    return collect(
        seeded_vit(),
        SETTINGS,
        train,
        measure,
        bookmark=bookmark,
        out=folder / "samples.json",
    )


def test_three_walks_from_the_trained_model(tmp_path: Path) -> None:
    seen: list[Stage] = []
    found = run(tmp_path, nudge(seen=seen))
    walks = [(1, 0), (2, 0), (3, 0)], [(0, 1), (0, 2), (0, 3)], [(1, 1), (1, 2)]
    units = [(len(each.plan.attention), len(each.plan.activation)) for each in found]
    assert units == [(0, 0), *(pair for walk in walks for pair in walk)]
    assert found[0].accuracy == evaluate(seeded_vit()).hits / 10
    assert (found[-1].attention, found[-1].activation) == (0.25, 0.5)
    assert [stage.index for stage in seen] == [0, 1, 2, 3, 1, 2, 3, 1, 2, 3]
    assert seen[1].name == "step 1 of 9: attention"
    # A walk goes on from its own last step.
    attention = [each.plan.attention for each in found[1:4]]
    assert set(attention[0]) < set(attention[1]) < set(attention[2])
    assert found[4].plan.attention == ()
    assert found[7].plan.activation == found[4].plan.activation
    assert read_samples(tmp_path / "samples.json") == found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a collection that was not killed."""
    folder = tmp_path_factory.mktemp("whole")
    run(folder, nudge())
    return folder


@pytest.mark.parametrize(
    ("what", "calls"),
    [
        ("training", 0),
        ("training", 1),
        ("training", 4),
        ("measuring", 0),
        ("measuring", 3),
        ("measuring", 7),
    ],
)
def test_a_run_that_was_killed_ends_with_the_same_samples(
    tmp_path: Path, whole: Path, what: str, calls: int
) -> None:
    left = [calls]

    def cut(kind: str) -> None:
        if kind == what:
            if not left[0]:
                raise PowerCutError
            left[0] -= 1

    def train(student: torch.nn.Module, stage: Stage) -> None:
        cut("training")
        nudge()(student, stage)

    def measure(vit: PrunableViT) -> Tally:
        cut("measuring")
        return evaluate(vit)

    with pytest.raises(PowerCutError):
        run(tmp_path, train, measure)
    samples = read_samples(whole / "samples.json")
    assert run(tmp_path, nudge()) == samples
    for name in ("samples.json", "last.safetensors"):
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes()
    # One that is done has nothing left to do.
    assert run(tmp_path, nudge(0), measure) == samples


@given(st.integers(0, 6), st.integers(0, 6), st.integers(1, 14), st.integers(1, 4))
def test_walks_end_where_units_or_the_budget_do(
    attention: int, activation: int, units: int, step: int
) -> None:
    available = {ATTENTION: attention, ACTIVATION: activation}
    steps = list(steps_of(available, units, step))
    walks: list[list[tuple[UnitType, int]]] = [[]]
    place = 0
    for each in steps:
        if each.place <= place:
            walks.append([])
        place = each.place
        walks[-1].append((each.unit, each.count))
        assert 1 <= each.count <= step
    for walk in walks:
        gone = {
            unit: sum(count for own, count in walk if own == unit) for unit in UnitType
        }
        assert sum(gone.values()) <= units
        assert all(gone[unit] <= available[unit] for unit in UnitType)
    alone = {
        unit: sum(each.count for each in steps if each.unit == unit)
        for unit in UnitType
    }
    assert alone[ATTENTION] >= min(units, attention) and alone[ACTIVATION] >= min(
        units, activation
    )


def test_a_sample_has_its_accuracy(tmp_path: Path) -> None:
    (tmp_path / "samples.json").write_text('[{"attention": 0}]')
    with pytest.raises(ArtefactError, match=r"samples\.json"):
        read_samples(tmp_path / "samples.json")


def test_steps_of_two_units() -> None:
    steps = steps_of({ATTENTION: 3, ACTIVATION: 4}, 4, 2)
    told = [(each.place, each.unit.value[:3], each.count) for each in steps]
    walks = (
        [(1, "att", 2), (2, "att", 1)],
        [(1, "act", 2), (2, "act", 2)],
        [(1, "act", 2), (2, "att", 2)],
    )
    assert told == [step for walk in walks for step in walk]
