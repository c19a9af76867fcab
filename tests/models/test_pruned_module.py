"""A pruned copy of its owner's module: it trains, is saved and is exported as the module would be."""

import copy
import io
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import exporter
from exporter.core.base.errors import ModelError, RecipeError
from exporter.core.base.vocabulary import Method
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.jobs.steps import reference_of
from exporter.models.pruned_module import is_pruned
from tests.exhaustive import also
from tests.models.huggingface.saved import KINDS, make
from tests.pages import ROOT
from tests.vits import make_model, make_torchvisions

IMAGES = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(4)
HALF = exporter.Prune(rates={2: 0.5})


def rates(method: str, **settings: Any) -> exporter.Prune:
    return exporter.Prune(method=Method(method), rates={2: 0.5, 3: 0.7}, **settings)


# What stays open of a method is decided without a calibration.
WAYS: dict[str, tuple[exporter.Prune, str]] = {
    "matching": (rates("matching"), "shrinking"),
    "tome": (rates("tome"), "shrinking"),
    "dropped": (rates("star", scorer="intra", reduce="drop"), "shrinking"),
    "merged": (rates("star", scorer="intra", reduce="merge-weighted"), "shrinking"),
    "a-star": (rates("a-star", scorer="intra"), "shrinking"),
    "a-star, packed": (rates("a-star", scorer="intra"), "packed"),
}
MODULES: dict[str, Callable[[], nn.Module]] = {
    "timm": make_model,
    "timm's eva": lambda: make_model("eva02, joined, rotary"),
    "torchvision": make_torchvisions,
    "hugging face": lambda: make("vit"),
}


def answer(model: nn.Module, images: Tensor = IMAGES) -> Tensor:
    given = model(images)
    return given if isinstance(given, Tensor) else given.logits


def gradients(model: nn.Module) -> dict[str, Tensor]:
    model.zero_grad()
    cross_entropy(answer(model), LABELS).backward()
    return {
        name: value.grad.clone()
        for name, value in model.named_parameters()
        if value.grad is not None
    }


@pytest.mark.parametrize("kind", MODULES)
def test_it_is_the_owners_module_but_for_the_patches(kind: str) -> None:
    model = MODULES[kind]().train()
    frozen, trained, *_ = model.parameters()
    frozen.requires_grad_(False)
    pruned = exporter.prune(model, HALF)
    assert type(pruned) is type(model)
    assert pruned.training
    assert list(pruned.state_dict()) == list(model.state_dict())
    own = {name: value.requires_grad for name, value in model.named_parameters()}
    theirs = {name: value.requires_grad for name, value in pruned.named_parameters()}
    assert theirs == own
    assert not {id(value) for value in pruned.parameters()} & {id(trained), id(frozen)}
    assert not answer(pruned.eval()).equal(answer(model.eval()))
    pruned.load_state_dict(model.state_dict())
    model.load_state_dict(pruned.state_dict())
    assert not is_pruned(model)


@pytest.mark.parametrize("kind", MODULES)
def test_gradients_at_rates_of_one_are_the_modules_own(kind: str) -> None:
    model = MODULES[kind]()
    own, theirs = gradients(model), gradients(exporter.prune(model, 1.0))
    assert own.keys() == theirs.keys() == dict(model.named_parameters()).keys()
    for name, value in own.items():
        torch.testing.assert_close(theirs[name], value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_the_slope_of_the_loss(way: str) -> None:
    """Along a random direction of all parameters, in float64."""
    amount, layout = WAYS[way]
    model = exporter.prune(make_model(), amount, layout=layout).double()
    images, step = IMAGES.double(), 1e-6
    loss = cross_entropy(model(images), LABELS)
    loss.backward()
    generator = torch.Generator().manual_seed(0)
    slope, losses = 0.0, list[float]()
    values = [value.detach().clone() for value in model.parameters()]
    ways = [torch.randn(v.shape, generator=generator).to(v) for v in values]
    for parameter, way_of in zip(model.parameters(), ways, strict=True):
        assert parameter.grad is not None
        slope += float((parameter.grad * way_of).sum())
    with torch.no_grad():
        for sign in (1.0, -1.0):
            parts = zip(model.parameters(), values, ways, strict=True)
            for parameter, value, way_of in parts:
                parameter.copy_(value + sign * step * way_of)
            losses.append(float(cross_entropy(model(images), LABELS)))
    assert slope == pytest.approx((losses[0] - losses[1]) / (2 * step), rel=1e-4)


PROGRAM = """
import torch
from tests.models.test_pruned_module import IMAGES, MODULES, WAYS, exporter, gradients

for kind, way in (("timm", "matching"), ("timm's eva", "dropped"), ("torchvision", "tome")):
    pruned = exporter.prune(MODULES[kind](), WAYS[way][0])
    compiled = torch.compile(pruned, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(IMAGES), pruned(IMAGES), rtol=1e-4, atol=1e-4)
    own, theirs = gradients(pruned), gradients(compiled)
    for value, other in zip(own.values(), theirs.values(), strict=True):
        torch.testing.assert_close(other, value, rtol=1e-3, atol=1e-4)
"""


@pytest.mark.exhaustive
def test_a_program_of_static_counts_has_no_break() -> None:
    """Apart, since the checks of types in tests are none that PyTorch compiles."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# The library's method, before and after it was renamed.
RECOMPUTE = ("gradient_checkpointing_enable", "activation_checkpointing_enable")


@pytest.mark.parametrize("kind", ["timm", "hugging face"])
def test_blocks_computed_once_more_give_the_same_gradients(kind: str) -> None:
    pruned: Any = exporter.prune(MODULES[kind](), HALF).train()
    own = gradients(pruned)
    if kind == "timm":
        pruned.set_grad_checkpointing(True)
    else:
        getattr(pruned, RECOMPUTE[hasattr(pruned, RECOMPUTE[1])])()
    assert reference_counts(pruned) > reference_counts(pruned.eval(), backward=False)
    for name, value in gradients(pruned.train()).items():
        torch.testing.assert_close(value, own[name])


def reference_counts(model: nn.Module, *, backward: bool = True) -> int:
    """How often a linear layer of the blocks runs in a step."""
    calls = 0
    original = torch.nn.functional.gelu

    def counted(*args: Any, **kwargs: Any) -> Tensor:
        nonlocal calls
        calls += 1
        return original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "gelu", counted)
        loss = cross_entropy(answer(model), LABELS)
        if backward:
            loss.backward()
    return calls


def test_what_drops_out_in_training_is_the_owners() -> None:
    rates_of: dict[str, Any] = {
        "proj_drop_rate": 0.2,
        "drop_path_rate": 0.2,
        "attn_drop_rate": 0.2,
        "patch_drop_rate": 0.5,
    }
    pruned = exporter.prune(make_model(**rates_of), rates("matching")).train()
    torch.manual_seed(0)
    first, second = (pruned(IMAGES) for _ in range(2))
    assert not first.equal(second)
    first.sum().backward()
    pruned.eval()
    assert pruned(IMAGES).equal(pruned(IMAGES))


def test_dropout_of_the_library_is_its_configs() -> None:
    model: Any = make("vit")
    model.config.hidden_dropout_prob = 0.5
    pruned = exporter.prune(model, HALF).train()
    assert not answer(pruned).equal(answer(pruned))
    assert answer(pruned.eval()).equal(answer(pruned))


def test_autocast_trains_it() -> None:
    pruned = exporter.prune(make_model(), rates("matching"))
    with torch.autocast("cpu", torch.bfloat16):
        logits = pruned(IMAGES)
    torch.testing.assert_close(logits.float(), pruned(IMAGES), rtol=0.1, atol=0.3)
    logits.float().sum().backward()
    pruned.to(torch.bfloat16)(IMAGES.bfloat16()).sum().backward()


def to_bytes(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded: nn.Module = torch.load(file, weights_only=False)
    return loaded


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model)), to_bytes],
    ids=["deepcopy", "pickle", "torch.save"],
)
def test_a_copy_computes_the_same_by_itself(
    kind: str, copied: Callable[[nn.Module], nn.Module]
) -> None:
    pruned = exporter.prune(MODULES[kind](), HALF)
    expected = answer(pruned)
    other = copied(pruned)
    assert answer(other).equal(expected)
    for parameter in other.parameters():
        parameter.data.zero_()
    assert answer(pruned).equal(expected)
    assert not answer(other).equal(expected)


def test_a_wrapper_and_its_answers_stay() -> None:
    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = make_model()

        def forward(self, images: Tensor) -> Tensor:
            answer: Tensor = self.network(images)
            return answer

    pruned: Any = exporter.prune(Wrapper(), HALF)
    assert isinstance(pruned, Wrapper)
    assert "network.head.weight" in pruned.state_dict()
    assert pruned(IMAGES).equal(pruned.network(IMAGES))
    assert reference_of(pruned).schedule.keep == (16, 8, 8, 8)


@pytest.mark.ort
@pytest.mark.parametrize("kind", ["timm", "hugging face"])
def test_the_trained_module_is_exported_with_the_weights_that_it_has(kind: str) -> None:
    pruned = exporter.prune(MODULES[kind](), HALF).train()
    optimizer = torch.optim.SGD(pruned.parameters(), 0.1)
    gradients(pruned)
    optimizer.step()
    model = exporter.export(pruned)
    assert exporter.check(pruned, model, IMAGES).passed
    with torch.no_grad():
        torch.testing.assert_close(
            reference_of(pruned)(IMAGES), answer(pruned.eval()), rtol=1e-4, atol=1e-5
        )
    frozen = exporter.export(pruned.requires_grad_(False))
    assert frozen.SerializeToString() == model.SerializeToString()


def test_an_adapter_becomes_the_reference_of_its_own_modules() -> None:
    vit = exporter.load_model(make_model())
    pruned = exporter.prune(vit, mac_reduction=0.4)
    assert isinstance(pruned, PrunedViT)
    assert pruned.vit is vit
    assert pruned.schedule == exporter.plan(vit, exporter.Prune(mac_reduction=0.4))


def test_images_stand_in_for_a_calibration_and_are_what_a_star_counts_on() -> None:
    vit = exporter.load_model(make_model())
    images = torch.randn(16, 3, 32, 32)
    how = exporter.Prune(method=Method.A_STAR, mac_reduction=0.4)
    pruned = exporter.prune(vit, how, images=images)
    assert pruned.method == Method.A_STAR
    assert pruned.schedule.inter_sha256
    with pytest.raises(exporter.UserError, match="images"):
        exporter.prune(vit, how)


def test_one_amount_is_given() -> None:
    model = make_model()
    with pytest.raises(RecipeError, match="no amount"):
        exporter.prune(model)
    with pytest.raises(RecipeError, match="an amount and mac_reduction"):
        exporter.prune(model, 0.5, mac_reduction=0.4)


def test_what_a_pruned_module_has_not_is_said() -> None:
    model: Any = make_model()
    pruned: Any = exporter.prune(model, HALF)
    with pytest.raises(ModelError, match="forward_features"):
        pruned.forward_features(IMAGES)
    with pytest.raises(ModelError, match="that is not pruned"):
        exporter.export(model)
    with pytest.raises(ModelError, match="a pruned module"):
        exporter.prune(pruned, HALF)
    library: Any = exporter.prune(make("vit"), HALF)
    with pytest.raises(ModelError, match="output_attentions"):
        library(IMAGES, output_attentions=True)


@pytest.mark.parametrize(
    "kind",
    [
        name if name == "dinov2" else also(name)
        for name in KINDS
        if KINDS[name][1] != "SiglipVisionModel" or name == "siglip"
    ],
)
def test_every_kind_of_the_library_trains(kind: str) -> None:
    size = (16, 48) if kind == "oblong" else (32, 32)
    model = make(kind)
    images = torch.randn(2, 3, *size)
    pruned: Any = exporter.prune(model, exporter.Prune(rates={1: 0.5}))
    values = next(iter(pruned(images).values()))
    values.square().sum().backward()
    reached = {
        name for name, value in pruned.named_parameters() if value.grad is not None
    }
    unused = [name for name, _ in model.named_parameters() if name not in reached]
    assert all(part in name for name in unused for part in ["embeddings.mask_token"])
    assert pruned(images, return_dict=False)[0].equal(values)


@pytest.mark.parametrize("way", WAYS)
def test_patch_dropout_leaves_the_same_share_to_each_layer(way: str) -> None:
    amount, layout = WAYS[way]
    model = make_model(patch_drop_rate=0.5).train()
    reference = PrunedViT(
        vit := exporter.load_model(model), exporter.plan(vit, amount), layout=layout
    )
    vit.model.train()
    with torch.no_grad():
        trace = reference.trace(IMAGES)
    decision = trace.decisions[2]
    assert trace.score[2].shape[1] == 8
    if decision.count is None:
        assert decision.index.shape[1] == 4
    vit.model.eval()
