"""Files for TensorRT parsed and built by NVIDIA's own code, TensorRT for RTX, without a GPU."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import timm
import torch

from exporter.core.base.artefact import artefact_of
from exporter.core.base.errors import ArtefactError
from exporter.core.base.large_onnx import save_onnx
from exporter.core.base.targets import (
    RTX,
    TARGETS,
    TENSORRT,
    TENSORRT_FP8,
    TENSORRT_FP16,
    TENSORRT_INT8,
    Target,
)
from exporter.core.base.tensor_names import SLICED
from exporter.core.base.vocabulary import Layout, Method
from exporter.core.lower.instrumented import save_instrumented
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import (
    as_read,
    keep_everything,
    manual_schedule,
    shape_schedule,
)
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.engines.audit import Audit, audit, broken_promises
from exporter.engines.builder import build_plan
from exporter.engines.cost_model import estimated_ms, product_of
from exporter.engines.layers import EngineLayer
from exporter.engines.programs import Steps, read_programs
from exporter.engines.settings import BuildSettings
from exporter.engines.tool import WRONG, Tool, log_of, tool_of
from exporter.models.registry import adapt
from tests.core.lower.models import (
    FAMILIES,
    a_star,
    dense,
    lowered,
    merging,
    star,
    tome,
)
from tests.exhaustive import also
from tests.vits import random_images

pytestmark = pytest.mark.trt

METHODS: dict[str, Callable[[str], PrunedViT]] = {
    "dense": dense,
    "star": star,
    "merging": merging,
    "tome": tome,
    "a-star": lambda family: a_star(family, "padded"),
}
FORMS = [target for target in TARGETS.values() if target.runtime.engines]


@pytest.fixture(scope="module")
def rtx() -> Tool:
    for library in ("tensorrt_rtx", "polygraphy"):
        pytest.importorskip(library, reason="needs star-export[tensorrt-rtx]")
    return tool_of(RTX)


def written(pruned: PrunedViT, target: Target, path: Path) -> Path:
    images = random_images(pruned.vit, 4).numpy() if target.measures else None
    save_onnx(lowered(pruned, target, images=images), path)
    return path


def parsed() -> Iterator[Any]:
    """Every method of one family and one method of every family; `make test` takes one file."""
    for family in FAMILIES:
        for method in METHODS:
            if (method, family) == ("star", "vit"):
                yield method, family
            elif method == "star" or family == "vit":
                yield also(method, family)


@pytest.mark.parametrize(("method", "family"), [*parsed()])
def test_its_parser_takes_every_file_as_it_is(
    rtx: Tool, tmp_path: Path, method: str, family: str
) -> None:
    """Of all targets, and the variants of one, which `build` reads too; of other families in one precision."""
    pruned = METHODS[method](family)
    files = {
        target.name: written(pruned, target, tmp_path / f"{target.name}.onnx")
        for target in (FORMS if family == "vit" else [TENSORRT_FP16])
    }
    if family == "vit":
        variants = save_instrumented(files[TENSORRT_FP16.name])
        assert len(variants) == {"dense": 0, "a-star": 2}.get(method, 3)
        files |= {role: tmp_path / name for role, name in variants.items()}
    for name, path in files.items():
        with rtx.in_one_line(name, "a file that its parser takes"):
            _, network, _ = rtx.polygraphy.network_from_onnx_path(str(path))
        assert not rtx.log.cause, name
        assert network.num_layers > 100 or name == SLICED


def programs(
    rtx: Tool,
    pruned: PrunedViT,
    target: Target,
    folder: Path,
    sm: int = 80,
    *batches: int,
) -> tuple[Steps, ...]:
    settings = BuildSettings(runtime="tensorrt-rtx", sm=(sm,), batches=batches or (8,))
    file = written(pruned, target, folder / "m.onnx")
    fitting = settings.of_model(artefact_of(onnx.load(file)))
    return read_programs(build_plan(rtx, file, fitting, sm=sm))


def audited(
    rtx: Tool,
    pruned: PrunedViT,
    target: Target,
    folder: Path,
    sm: int = 80,
    batch: int = 8,
) -> Audit:
    ((steps, memory),) = programs(rtx, pruned, target, folder, sm, batch)
    return audit(steps, pruned.vit.spec.attention_layers, memory)


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", ["dense", "star"])
def test_every_quantized_product_multiplies_so(
    rtx: Tool, tmp_path: Path, method: str
) -> None:
    """Of a packed projection in a block without selection, TensorRT computes an fp16 product."""
    found = audited(rtx, METHODS[method]("vit"), TENSORRT_INT8, tmp_path)
    assert not found.unkept
    assert found.products["int8"] >= 4 * 4
    assert found.memory_bytes


def test_a_plan_of_another_form_is_no_empty_audit() -> None:
    with pytest.raises(ArtefactError, match="no program in it"):
        read_programs(b"a plan that was compressed")


def test_a_warning_after_which_it_computes_something_else(rtx: Tool) -> None:
    log = log_of(rtx.trt, WRONG)
    log.log(rtx.trt.ILogger.WARNING, "TensorRT prefers something")
    assert not log.cause
    log.log(rtx.trt.ILogger.WARNING, "Unused Input: nonpad_kv_seqlen")
    assert log.cause == "Unused Input: nonpad_kv_seqlen"


def test_what_is_no_model_is_one_line(rtx: Tool, tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    file.write_bytes(b"no model")
    settings = BuildSettings(runtime="tensorrt-rtx", sm=(86,))
    with pytest.raises(ArtefactError, match=r"m\.onnx \| got .*MODEL_DESERIALIZE"):
        build_plan(rtx, file, settings, sm=86)


def test_no_file_has_an_input_that_its_parser_drops() -> None:
    """It reads the four inputs of Attention, and drops nonpad_kv_seqlen without a word."""
    for target in FORMS:
        assert "fuse_attention" not in target.passes


def deit(method: str, round_to: int = 1) -> PrunedViT:
    """DeiT-T of random weights, pruned in eleven layers, by matching in three."""
    torch.manual_seed(0)
    vit = adapt(timm.create_model("deit_tiny_patch16_224").eval(), name="deit_tiny")
    inter = np.random.default_rng(0).uniform(
        0.1, 1.0, (vit.spec.depth, vit.spec.num_patches)
    )
    if method == "dense":
        return PrunedViT(vit, keep_everything(vit.spec)).eval()
    if method in (Method.TOME, Method.MATCHING):
        rho = 0.7 if method == Method.TOME else 0.9
        policy = resolve(Prune(method=Method(method), round_to=round_to))
        schedule = as_read(shape_schedule(vit.spec, rho, policy), vit.spec)
        return PrunedViT(vit, schedule).eval()
    settings = Prune("fused", alpha=0.5, method=Method.named(method))
    schedule = manual_schedule(
        vit.spec, dict.fromkeys(range(1, 12), 0.9), resolve(settings)
    )
    return PrunedViT(vit, schedule, inter, Layout.PADDED).eval()


def multiplied(steps: Iterable[EngineLayer]) -> int:
    """All multiply-adds of a plan; it states the sizes of everything that it moves."""
    total = 0
    for step in steps:
        assert all(tensor.sizes is not None for tensor in (*step.reads, *step.writes))
        product = product_of(step)
        assert product or not (step.product or step.is_fused_attention), step.name
        total += product.macs if product else 0
    return total


# The most steps of TensorRT for RTX 1.7.1, at batch 8: docs/results.md.
# Every method in one precision, and the unpruned and the default one in each.
STEPS = {
    TENSORRT: {"dense": 188, "matching": 174},
    TENSORRT_FP16: {
        "dense": 101,
        "star": 132,
        "a-star": 154,
        "tome": 181,
        "matching": 123,
    },
    TENSORRT_INT8: {"dense": 122, "matching": 144},
    TENSORRT_FP8: {"dense": 112, "matching": 134},
}
BUILT = [(target, method) for target, steps in STEPS.items() for method in steps]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("target", "method"), BUILT, ids=lambda each: getattr(each, "name", each)
)
def test_the_steps_of_deit_t(
    rtx: Tool, tmp_path: Path, target: Target, method: str
) -> None:
    pruned = deit(method)
    sm = 89 if target == TENSORRT_FP8 else 80
    ((steps, memory),) = programs(rtx, pruned, target, tmp_path, sm)
    found = audit(steps, pruned.vit.spec.attention_layers, memory)
    assert found.layers <= STEPS[target][method]
    assert multiplied(steps) == pytest.approx(8 * pruned.macs.total, rel=0.1)
    assert not broken_promises(found, target)
    # In fp32 that of the last layer alone, of one query.
    assert found.fused_kernels == (12 if target.reduced else 1)


@pytest.mark.exhaustive
def test_even_counts_are_not_padded(rtx: Tool, tmp_path: Path) -> None:
    assert (
        audited(rtx, deit("matching", round_to=2), TENSORRT_FP16, tmp_path).layers
        <= 123
    )


@pytest.mark.exhaustive
def test_the_first_set_is_compared_with_the_second_alone(
    rtx: Tool, tmp_path: Path
) -> None:
    """Where both have an even number of slots, as of 197 and 160 tokens; elsewhere all with all."""
    ((steps, _),) = programs(rtx, deit("matching"), TENSORRT_FP16, tmp_path)
    products = [product_of(step) for step in steps if step.product == "fp32"]
    sizes = [(product.rows, product.columns) for product in products if product]
    assert sizes == [(98, 98), (178, 178), (80, 80)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("batch", [8, 256])
def test_matching_holds_no_copy_of_its_keys_for_each_token(
    rtx: Tool, tmp_path: Path, batch: int
) -> None:
    dense, matching = (
        audited(rtx, deit(method), TENSORRT_FP16, tmp_path, batch=batch).memory_bytes
        or 0
        for method in ("dense", "matching")
    )
    assert 0 < matching <= 1.3 * dense


@pytest.mark.exhaustive
def test_the_estimate_is_that_of_the_first_cost_model(
    rtx: Tool, tmp_path: Path
) -> None:
    """Milliseconds at batch 1, 8, 64, 256 that were worked out apart from this code, of a plan of 22 more steps."""
    expected = 0.37, 0.52, 1.48, 5.86
    plans = programs(rtx, deit("dense"), TENSORRT_FP16, tmp_path, 80, 1, 8, 64, 256)
    estimated = [estimated_ms(steps, "8.0")["A100"] for steps, _ in plans]
    assert estimated == pytest.approx(expected, rel=0.15)


def test_every_target_that_it_builds_is_held_to_steps() -> None:
    assert [*STEPS] == FORMS
