"""What a decision leaves alive, and what tokens become: a model's outputs, by name and in order."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from exporter.pruning.grid import Grid
from exporter.pruning.pruned_vit import PrunedViT
from exporter.pruning.tokens import Decision, live_tokens
from exporter.records import Output
from exporter.schedule.plan import keep_everything
from exporter.vocabulary import OutputKind
from tests.pruning.adaptive import decided, make_adaptive
from tests.vits import make_vit, random_images, with_tokens


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 3), st.integers(0, 2))
def test_prefix_tokens_and_an_images_own_survivors_are_live(
    counts: list[int], prefix: int, padding: int
) -> None:
    index = torch.zeros(len(counts), max(counts) + padding, dtype=torch.int64)
    live = live_tokens(Decision(index, torch.tensor(counts)), prefix)
    assert live is not None
    width = prefix + index.shape[1]
    assert live.tolist() == [[True] * (prefix + n) + [False] * (width - prefix - n) for n in counts]
    assert live_tokens(Decision(index), prefix) is None


def test_outputs_are_named_in_order_with_what_tokens_need_beside_them() -> None:
    vit = with_tokens(make_vit())
    grid = Grid(torch.randn(2, 17, 48), 1)
    with torch.inference_mode():
        even, uneven = grid.outputs(vit), grid.reduce(decided([[1, 3], [2]])).outputs(vit)
    assert list(even) == ["logits", "tokens", "tokens_positions"]
    assert even["tokens_positions"].tolist() == [list(range(16))] * 2
    assert list(uneven) == [*even, "tokens_count"]
    assert uneven["tokens_count"].tolist() == [2, 1]
    assert uneven["tokens_positions"][0].tolist() == [1, 3] and uneven["tokens_positions"][1, 0] == 2
    torch.testing.assert_close(uneven["tokens"][0], even["tokens"][0, [1, 3]])


def test_the_tokens_are_those_after_the_final_norm_where_they_stand() -> None:
    vit = with_tokens(make_vit())
    images = random_images(vit, 2)
    with torch.inference_mode():
        logits, tokens, positions = PrunedViT(vit, keep_everything(vit.spec))(images)
        expected = vit.embed(images)
        for block in vit.blocks:
            expected = block.whole(expected)
        assert torch.equal(tokens, vit.norm(expected)[:, 1:])
        assert torch.equal(logits, vit.model(images))
        assert positions.tolist() == [list(range(16))] * 2
        trace = make_adaptive(vit, "packed").trace(images)
    standing = torch.arange(16).expand(2, -1)
    for decision in trace.decisions.values():
        standing = standing.gather(1, decision.index)
    last = trace.decisions[4].count
    assert last is not None and torch.equal(trace.outputs["tokens_count"], last)
    for image, count in enumerate(last.tolist()):
        assert torch.equal(trace.outputs["tokens_positions"][image, :count], standing[image, :count])


def test_an_adapter_may_give_logits_and_an_embedding() -> None:
    vit = make_vit()

    def head(normed: torch.Tensor, output: Output, sizes: torch.Tensor | None = None) -> torch.Tensor:
        assert sizes is None
        return vit.classify(normed) if output.kind == OutputKind.LOGITS else normed[:, 0]

    vit.head = head  # type: ignore[method-assign]
    vit.outputs = (*vit.outputs, Output("features", OutputKind.EMBEDDING))
    object.__setattr__(vit.spec, "outputs", (*vit.spec.outputs, Output("features", OutputKind.EMBEDDING, 48)))
    images = random_images(vit, 2)
    with torch.inference_mode():
        logits, features = PrunedViT(vit, keep_everything(vit.spec))(images)
    assert logits.shape == (2, 7) and features.shape == (2, 48)
