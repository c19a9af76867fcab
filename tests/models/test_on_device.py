"""Networks on a device: on the meta device the same shapes, and elsewhere the same values."""

import timm
import torch
from torch import Tensor, nn

from exporter.models.on_device import on_device
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


def test_on_the_meta_device_only_what_is_there_is_written() -> None:
    with on_device("meta"):
        weight = nn.Linear(3, 2).weight.data
        assert weight.mul_(2.0) is weight
        kept = torch.ones(2, device="cpu")
        assert kept.mul_(3.0).add_(1.0).tolist() == [4.0, 4.0]
