import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from exporter.core.base.errors import ArtefactError, MissingDependencyError, UserError
from exporter.core.base.targets import (
    OPENVINO,
    OPENVINO_BF16,
    OPENVINO_INT8,
    Target,
)
from exporter.core.verify import openvino_runner
from exporter.core.verify.openvino_runner import OpenVinoRunner
from exporter.core.verify.runner import TensorInfo
from exporter.engines.choice import why_not
from tests.core.lower.models import lowered, star
from tests.openvino_nodes import executed
from tests.tiny_onnx import WEIGHT, linear_classifier, noise
from tests.vits import random_images

ROOT = Path(__file__).parents[3]


def needs_openvino() -> None:
    pytest.importorskip(
        "openvino", reason="needs OpenVINO: pip install 'star-export[openvino]'"
    )


@pytest.mark.parametrize("batch", [1, 5])
def test_it_runs_a_file_and_says_what_it_takes(batch: int) -> None:
    needs_openvino()
    with OpenVinoRunner(linear_classifier(), threads=1) as runner:
        assert runner.inputs == (TensorInfo("images", ("batch", 3, 4, 4), "float32"),)
        logits = runner.run({"images": noise(batch)})["logits"]
    np.testing.assert_allclose(
        logits, noise(batch).mean((2, 3)) @ WEIGHT, rtol=1e-4, atol=1e-5
    )


def test_results_of_two_runs_are_two_arrays() -> None:
    needs_openvino()
    with OpenVinoRunner(linear_classifier()) as runner:
        first = runner.run({"images": noise()})["logits"]
        copy = first.copy()
        runner.run({"images": noise() + 1})
    np.testing.assert_array_equal(first, copy)


def test_a_size_that_was_forgotten_is_compiled_again() -> None:
    needs_openvino()
    sizes = range(1, 7)  # more than are kept
    with OpenVinoRunner(linear_classifier(), threads=1) as runner:
        first, again = (
            [runner.run({"images": noise(size)})["logits"] for size in sizes]
            for _ in range(2)
        )
    assert [len(logits) for logits in first] == list(sizes)
    for before, after in zip(first, again, strict=True):
        np.testing.assert_array_equal(before, after)


def test_signals_are_heard_after_runners_that_ended_in_the_order_of_their_making() -> (
    None
):
    """As Ctrl-C is after a comparison of two models; alone, since the process ends otherwise."""
    needs_openvino()
    code = (
        "import signal; from exporter.core.verify.openvino_runner import OpenVinoRunner as Runner;"
        "from tests.tiny_onnx import linear_classifier as model;"
        "runners = [Runner(model(), threads=1) for _ in range(2)];"
        "[runner.__enter__()._request_of(1) for runner in runners];"
        "[runners.pop(0).__exit__(None, None, None) for _ in range(2)];"
        "signal.signal(signal.SIGUSR1, lambda *_: print('heard'));"
        "signal.raise_signal(signal.SIGUSR1)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "heard\n"), done.stderr


def in_(target: Target) -> bytes:
    """A pruned model for a target."""
    return lowered(
        star(), target, images=random_images(star().vit, 8).numpy()
    ).SerializeToString()


@pytest.mark.parametrize(
    ("target", "ran"),
    [
        (OPENVINO, {"f32"}),
        (OPENVINO_BF16, {"f32", "bf16"}),
        (OPENVINO_INT8, {"f32", "i8"}),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_the_precisions_of_a_target_are_those_that_run(
    target: Target, ran: set[str]
) -> None:
    needs_openvino()
    if reason := why_not(target):
        pytest.skip(reason)
    with OpenVinoRunner(in_(target)) as runner:
        assert ran == {"f32", "i8", "bf16"} & {
            precision for _, precision in executed(runner)
        }


def test_scores_are_fp32_where_the_rest_is_bf16() -> None:
    """As OpenVINO runs them: softmax and mean of the class row, and the top-k of its scores."""
    needs_openvino()
    if reason := why_not(OPENVINO_BF16):
        pytest.skip(reason)
    with OpenVinoRunner(in_(OPENVINO_BF16)) as runner:
        scoring = {
            each
            for each in executed(runner)
            if each[0] in ("Softmax", "TopK", "Reduce")
        }
    assert scoring == {
        ("Softmax", "f32"),
        ("TopK", "f32"),
        ("TopK", "i32"),
        ("Reduce", "f32"),
    }


def test_a_precision_that_the_cpu_lacks_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needs_openvino()
    monkeypatch.setattr(
        openvino_runner, "openvino_precisions", lambda: ("fp32", "int8")
    )
    wanted = OpenVinoRunner(in_(OPENVINO_BF16))
    with pytest.raises(UserError, match=r"bf16 \| got a CPU with fp32, int8"), wanted:
        pass
    assert not wanted.active


def test_without_openvino_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with (
        pytest.raises(MissingDependencyError, match=r"star-export\[openvino\]"),
        OpenVinoRunner(b""),
    ):
        pass


def test_what_is_no_model_is_one_line() -> None:
    needs_openvino()
    with pytest.raises(ArtefactError) as caught, OpenVinoRunner(b"not a model"):
        pass
    assert "\n" not in str(caught.value)
