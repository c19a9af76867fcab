"""Networks on a device: on the meta device the same shapes, and elsewhere the same values."""

from typing import Any

import timm
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from exporter.models.networks import on_device
from tests.vits import TINY

NAME = "vit_tiny_patch16_224"


def built(device: str) -> dict[str, Tensor]:
    torch.manual_seed(0)
    with on_device(device):
        return dict(timm.create_model(NAME, **TINY).named_parameters())


def test_parameters_of_the_same_shapes_without_values() -> None:
    plain, meta = built("cpu"), built("meta")
    assert {name: each.shape for name, each in meta.items()} == {n: each.shape for n, each in plain.items()}
    assert all(each.is_meta and each.requires_grad for each in meta.values())


def test_on_the_cpu_the_usual_values() -> None:
    torch.manual_seed(0)
    usual = dict(timm.create_model(NAME, **TINY).named_parameters())
    assert all(torch.equal(usual[name], each) for name, each in built("cpu").items())


class Written(TorchDispatchMode):
    """The operators that ran, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_values_are_written_only_where_there_are_some() -> None:
    random = {"uniform_", "normal_", "erfinv_"}
    with Written() as written:
        built("cpu")
    assert written.names >= random
    with Written() as written:
        built("meta")
    assert not written.names & random
    with on_device("meta"):
        assert torch.ones(2, device="cpu").mul_(3.0).add_(1.0).tolist() == [4.0, 4.0]
