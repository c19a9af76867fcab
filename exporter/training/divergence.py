"""How far a pruned model's answers are from the dense model's, image by image, without labels.

The divergence of an image is the Kullback-Leibler divergence of its classes' chances from the dense model's (in
nats), of labels and of one logit that of each yes or no, in sum; of values the mean square of their differences,
each in the deviation of the dense model's over the images; or one minus the cosine of its embeddings.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from exporter.core import compiler
from exporter.core.base.errors import ScheduleError
from exporter.core.base.intervals import mean_interval
from exporter.core.base.records import Output
from exporter.core.base.vocabulary import OutputKind
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.vit.protocol import PrunableViT
from exporter.measure.loss import Gain

# Values that are the same for all images have no deviation to measure by.
LEAST_SPREAD = 1e-12


@dataclass(frozen=True)
class Judges:
    """Images that say, without labels, how far a model's answers are from the dense model's.

    `images` are batches [b, c, h, w], `answers` those of the dense model.
    """

    vit: PrunableViT
    images: Sequence[Tensor]
    answers: Tensor

    @classmethod
    def of(
        cls,
        vit: PrunableViT,
        images: Sequence[Tensor],
        on_progress: Callable[[int, int], object] = lambda *_: None,
    ) -> "Judges":
        """Return images with the answers of the dense model; progress is the number of batches done, and of all."""
        dense = compiler.prune(vit, compiler.plan(vit, None)).eval()
        rows = []
        for done, batch in enumerate(images, start=1):
            rows.append(answers(dense, [batch]))
            on_progress(done, len(images))
        return cls(vit, images, torch.cat(rows))

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def told_apart(self) -> float:
        """Which share of the variety of the dense model's answers follows from the image; 1 of values, embeddings.

        It is one less the answers' mean entropy over the entropy of their mean. To noise a model gives nearly the
        same answer each time, however sure it is of it.
        """
        output = _output(self.vit)
        if output.kind in (OutputKind.VALUES, OutputKind.EMBEDDING):
            return 1.0
        chances = _log_chances(self.answers, output).exp()
        doubt = torch.special.entr(chances).sum((-2, -1)).mean()
        return float(
            1.0 - doubt / torch.special.entr(chances.mean(0)).sum().clamp(min=1e-12)
        )

    def divergences(self, pruned: PrunedViT) -> np.ndarray:
        """Return the divergence of each image."""
        changed, output = answers(pruned, self.images), _output(self.vit)
        if output.kind == OutputKind.EMBEDDING:
            return (
                (1.0 - torch.cosine_similarity(self.answers, changed, dim=-1))
                .double()
                .numpy()
            )
        if output.kind == OutputKind.VALUES:
            spread = self.answers.double().std(0, correction=0).clamp_min(LEAST_SPREAD)
            return (
                ((changed.double() - self.answers) / spread).square().mean(-1).numpy()
            )
        log_chances = _log_chances(self.answers, output)
        excess = log_chances - _log_chances(changed, output)
        return (log_chances.exp() * excess).sum((-2, -1)).numpy()


def _log_chances(numbers: Tensor, output: Output) -> Tensor:
    """Return the logarithms of chances, [images, questions, answers]; labels and one logit answer yes or no."""
    numbers = numbers.double()
    if output.kind == OutputKind.LABELS or output.channels == 1:
        return logsigmoid(torch.stack([numbers, -numbers], dim=-1))
    return numbers.log_softmax(-1).unsqueeze(1)


def gain_of(without: np.ndarray, with_change: np.ndarray, read: int) -> Gain:
    """Compare the divergences of the same images, [images] each."""
    gains = without - with_change
    return Gain(
        float(without.mean()),
        float(gains.mean()),
        mean_interval(gains),
        read,
        len(gains),
    )


def answers(model: PrunedViT, images: Sequence[Tensor]) -> Tensor:
    """Return the numbers of the head, or the embeddings, of all images [images, channels], on the CPU.

    Raises:
        ScheduleError: The model gives neither.
    """
    name, device = _output(model.vit).name, model.vit.device
    with torch.inference_mode():
        rows = [
            model.trace(batch.to(device)).outputs[name].float().cpu()
            for batch in images
        ]
    return torch.cat(rows)


def _output(vit: PrunableViT) -> Output:
    """Return that of the head, or else the embedding."""
    for output in (vit.spec.head, *vit.spec.vectors):
        if output is not None:
            return output
    got = ", ".join(output.name for output in vit.spec.outputs)
    raise ScheduleError("divergence", f"the outputs {got}", "a head's or an embedding")
