r"""Fit a classifier on the mean of the patches of a model, which reads no class token then; write its checkpoint.

    python benchmarks/pooled_head.py --model cifar_vit --images build/cifar10/train --out build/pooled.safetensors
    star-export eval --model vit_tiny_patch16_224 --checkpoint build/pooled.safetensors --model-kwargs img_size=32 \
        patch_size=4 embed_dim=192 num_heads=3 depth=9 global_pool=avg fc_norm=False --images build/cifar10/test

The blocks stay as they are. The classifier is the multinomial regression of the normed patches' mean, with a small
penalty on its weights.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from exporter.data.batches import batches
from exporter.data.images import list_images, sample
from exporter.models.base import PrunableViT, whole_block
from exporter.models.networks import ModelRequest
from exporter.models.registry import load

__all__ = ["main"]

PENALTY = 1e-4


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="cifar_vit", help="A model with a class token.")
    parser.add_argument("--images", type=Path, required=True, help="A folder of one folder per class.")
    parser.add_argument("--max-images", type=int, default=10_000, help="Images to fit on.")
    parser.add_argument("--out", type=Path, required=True, help="The checkpoint.")
    options = parser.parse_args()
    vit = load(ModelRequest(options.model))
    folder = sample(list_images(options.images, num_classes=vit.spec.num_classes), options.max_images, seed=0)
    features, labels = _features(vit, [*batches(folder.files, vit.spec.preprocessing, "float32", 100)])
    weight, bias = _fit(features, labels, vit.spec.num_classes)
    right = (F.linear(features, weight, bias).argmax(1) == labels).float().mean()
    print(f"{len(labels)} images, {right:.2%} of them right")
    state = {**vit.model.state_dict(), "head.weight": weight, "head.bias": bias}
    save_file({name: value.contiguous() for name, value in state.items()}, options.out)


@torch.inference_mode()
def _features(vit: PrunableViT, loaded: list[tuple[object, object]]) -> tuple[Tensor, Tensor]:
    means = []
    for images, _ in loaded:
        tokens = vit.embed(torch.as_tensor(images))
        for block in vit.blocks:
            tokens = whole_block(block, tokens)
        means.append(vit.norm(tokens)[:, vit.spec.num_prefix_tokens :].mean(1))
    return torch.cat(means), torch.cat([torch.as_tensor(labels) for _, labels in loaded])


def _fit(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    # Clones: tensors of inference mode take no part in gradients.
    features, labels = features.clone(), labels.clone()
    weight = torch.zeros(classes, features.shape[1], requires_grad=True)
    bias = torch.zeros(classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=300, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(F.linear(features, weight, bias), labels) + PENALTY * weight.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    return weight.detach(), bias.detach()


if __name__ == "__main__":
    main()
