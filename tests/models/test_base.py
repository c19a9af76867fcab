"""What a ViT is where its adapter says nothing: logits from the tokens after the final norm."""

import pytest
import torch
from torch import Tensor, nn
from typing_extensions import override

from exporter.models.base import PrunableViT
from exporter.records import Output
from exporter.tensor_names import LOGITS
from exporter.vocabulary import OutputKind
from tests.vits import FAMILIES, cut_vit, make_vit


class Plain(PrunableViT):
    """Every token's channels are classes; logits are the class token's. It has no block."""

    blocks = ()

    @override
    def embed(self, images: Tensor) -> Tensor:
        return images

    @override
    def norm(self, tokens: Tensor) -> Tensor:
        return tokens

    @override
    def classify(self, normed: Tensor) -> Tensor:
        return normed[:, 0]


def plain(model: nn.Module) -> Plain:
    return Plain(model, make_vit().spec, "abc")


def test_the_head_is_the_classifier_and_reads_the_final_norm() -> None:
    vit, normed = plain(nn.Linear(2, 2)), torch.randn(2, 5, 7)
    assert vit.features(normed) is normed
    assert torch.equal(vit.head(normed, Output(LOGITS, OutputKind.LOGITS)), normed[:, 0])
    assert [(output.name, output.kind) for output in vit.outputs] == [("logits", "logits")]
    assert (vit.spec, vit.weights_sha256) == (make_vit().spec, "abc")


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_it_is_where_its_weights_are(device: str) -> None:
    vit = plain(nn.Linear(2, 2, device=device))
    assert vit.device == torch.device(device)
    vit.model.to_empty(device="meta")
    assert vit.device == torch.device("meta")


def test_an_adapter_must_say_how_it_embeds_norms_and_classifies() -> None:
    with pytest.raises(TypeError, match=r"abstract methods .*classify.*embed.*norm"):
        PrunableViT(nn.Linear(2, 2), make_vit().spec, "")  # type: ignore[abstract]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tokens_that_classify_are_those_that_score(family: str) -> None:
    vit = make_vit(family)
    count = vit.spec.num_class_tokens
    assert [each.token for each in vit.classifiers] == list(range(count))
    assert (count == 2) == (family == "distilled")


def test_a_block_without_attention_scores_nothing() -> None:
    assert [block.attention is None for block in cut_vit("distilled").blocks] == [False, True, *[False] * 3]
