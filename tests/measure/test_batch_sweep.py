"""A dense and a pruned model at several batch sizes, their settings and the baseline of the selection cost."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from exporter.core.base.artefact import read_lowered
from exporter.core.base.vocabulary import Method
from exporter.measure.batch_sweep import (
    AS_IT_CAME,
    NOT_SLICED,
    AtBatch,
    filled_batch,
    sliced_of,
    time_batches,
)
from tests.core.lower.models import lowered, star
from tests.fakes import TurnedClock
from tests.folders import write_folder


def test_it_chooses_nothing(tmp_path: Path) -> None:
    onnx.save(lowered(star()), tmp_path / "m.onnx")
    sliced = sliced_of(read_lowered(tmp_path / "m.onnx"))
    assert sliced.model is not None
    operators = {
        node.op_type for node in onnx.load_model_from_string(sliced.model).graph.node
    }
    assert "TopK" not in operators and "Slice" in operators
    own = {
        node.name: node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node
    }
    assert "TopK" in {own[name] for name in sliced.selection}


def test_weights_beside_the_file_are_in_the_slice(tmp_path: Path) -> None:
    model = lowered(star())
    onnx.save(model, tmp_path / "m.onnx")
    onnx.save(
        model,
        tmp_path / "split.onnx",
        save_as_external_data=True,
        location="w",
        size_threshold=0,
    )
    assert (tmp_path / "w").stat().st_size > (tmp_path / "split.onnx").stat().st_size

    def weights(name: str) -> dict[str, bytes]:
        sliced = onnx.load_model_from_string(
            sliced_of(read_lowered(tmp_path / name)).model or b""
        )
        return {
            tensor.name: onnx.numpy_helper.to_array(tensor).tobytes()
            for tensor in sliced.graph.initializer
        }

    assert weights("split.onnx") == weights("m.onnx") != {}


def test_no_slice_stands_for_counts_that_follow_the_image(tmp_path: Path) -> None:
    files = write_folder(tmp_path, method=Method.A_STAR)
    assert sliced_of(read_lowered(files.pruned)) == NOT_SLICED


MAC_RATIO = 2.0
IMAGES = np.arange(6, dtype=np.float32).reshape(2, 3)


def measure(**times_s: dict[int, list[float]]) -> list[AtBatch]:
    """Times of each model in five rounds at each batch, one warm-up round before them."""
    clock = TurnedClock()

    def schedule(by_batch: dict[int, list[float]]) -> Iterator[float]:
        return itertools.chain.from_iterable(
            [99.0, *rounds] for rounds in by_batch.values()
        )

    runners = {
        name: clock.runner(name, schedule(by_batch))
        for name, by_batch in times_s.items()
    }
    sizes = list(times_s["dense"])
    told: list[tuple[int, int]] = []
    results = [
        AtBatch.of(times, MAC_RATIO)
        for times in time_batches(
            runners,
            IMAGES,
            sizes,
            5,
            warmup=1,
            clock=clock,
            on_progress=lambda *progress: told.append(progress),
        )
    ]
    images = 6 * len(runners) * sum(sizes)  # with the warm-up round
    assert told[0] == (sizes[0], images)
    assert told[-1] == (images, images)
    assert len(told) == 6 * len(runners) * len(sizes)
    assert all(
        (runner.activations, runner.deactivations) == (1, 1)
        for runner in runners.values()
    )
    return results


def test_speed_up_efficiency_and_selection_cost() -> None:
    (result,) = measure(
        dense={4: [0.4] * 5}, pruned={4: [0.25] * 5}, sliced={4: [0.2] * 5}
    )
    assert result.batch == 4
    assert result.throughput.dense.images_per_s == pytest.approx(10)
    assert result.speed_up.median == pytest.approx(1.6)
    assert result.efficiency == pytest.approx(0.8)  # a MAC ratio of 2
    assert result.selection is not None and result.as_it_came is None
    assert result.selection.cost.median == pytest.approx(1.25)
    assert result.selection.ceiling.median == pytest.approx(2.0)


def test_the_model_as_it_came_stands_beside_both() -> None:
    came = {AS_IT_CAME: {4: [0.5, 0.6, 0.7, 0.6, 0.6]}}
    (result,) = measure(
        dense={4: [0.4, 0.4, 0.5, 0.4, 0.2]}, pruned={4: [0.25] * 5}, **came
    )
    assert result.as_it_came is not None and result.selection is None
    assert result.as_it_came.throughput.images_per_s == pytest.approx(4 / 0.6)
    by_export, by_pruning = result.as_it_came.by_export.median, result.speed_up.median
    assert (by_export, by_pruning) == pytest.approx((1.5, 1.6))
    assert result.as_it_came.whole == by_export * by_pruning


def test_images_are_repeated_or_cut_to_the_batch() -> None:
    np.testing.assert_array_equal(
        filled_batch(IMAGES, 3), [[0, 1, 2], [3, 4, 5], [0, 1, 2]]
    )
    np.testing.assert_array_equal(filled_batch(IMAGES, 1), [[0, 1, 2]])
