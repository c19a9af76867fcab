"""The training loop: a model learns from labels and, with a teacher, from the teacher's predictions."""

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs
from timm.optim import create_optimizer_v2, param_groups_weight_decay
from timm.scheduler import create_scheduler_v2
from timm.utils import ModelEmaV3, random_seed
from torch import Tensor, nn
from torch.nn import functional as F

from exporter.core.base.errors import ImageError, ModelError, RecipeError
from exporter.processes import processes
from exporter.training.checkpoint import RunState, Score
from exporter.training.settings import FinetuneSettings

TrainBatch = tuple[Tensor, Tensor]
EpochBatches = Callable[[int], Iterable[TrainBatch]]
OnEpoch = Callable[[int, float], object]

logger = logging.getLogger(__name__)


def finetune(
    student: nn.Module,
    teacher: nn.Module | None,
    batches: EpochBatches,
    settings: FinetuneSettings,
    *,
    checkpoint: Path | None = None,
    identity: str = "",
    skipped: dict[str, str] | None = None,
    on_epoch: OnEpoch | None = None,
    score: Score | None = None,
) -> int:
    """Train a model in place, and return the epoch whose weights it has in the end, in eval mode.

    That is the last epoch, or with `score` the best, 0 for before training; averaged weights where there are any.
    With a teacher the loss is (1 − a)·CE(student, label) + a·CE(student, teacher's class), a being
    `settings.distillation`, of the same logits: hard distillation as in STAR. Gradients of a `PrunedViT` pass
    through the tokens that it keeps or merges, not through its decisions. Under a launcher every process calls this
    with its part of each batch: a step is that of the whole batch, and all end with the same weights.

    Args:
        student: Maps images to logits [batch, classes]; on its device. Frozen parameters do not change.
        teacher: An unpruned model with the same interface, in eval mode; not changed. None: labels only.
        batches: Returns an epoch, counted from 0: images [batch, 3, height, width] and classes int64 [batch], or
            their probabilities, float [batch, classes].
        settings: Epochs, learning rate, loss, seed.
        checkpoint: Written after each epoch, continued if it is there; removed where numbers stop being finite.
        identity: Identifies the run: a checkpoint with another identity is refused.
        skipped: Where `batches` notes images that this process could not read; has those of all after each epoch.
        on_epoch: Called after each epoch with the epochs done and the mean loss, the student in eval mode.
        score: How good a model is, the same in every process, by images that it is not trained on; the later of
            equal ones is the better.
    """
    if not any(parameter.requires_grad for parameter in student.parameters()):
        got = "a model whose parameters are all frozen"
        raise ModelError("student", got, "one that can be trained")
    run = _new_run(student, settings, identity, {} if skipped is None else skipped)
    if checkpoint is not None and run.restore(checkpoint):
        logger.info("%s: continuing after epoch %d", checkpoint, run.epochs_done)
    trainer = _Trainer(run, _joined(student), teacher, settings)
    checkpoint_path = checkpoint if processes().main else None
    if score is not None and run.best is None:
        run.keep_best(score)
    for epoch in range(run.epochs_done, settings.epochs):
        loss = _trained(trainer, epoch, batches(epoch), checkpoint_path)
        if score is not None:
            run.keep_best(score)
        if checkpoint_path is not None:
            run.save(checkpoint_path)
        done, rate = run.epochs_done, run.optimizer.param_groups[0]["lr"]
        text = "epoch %d/%d  loss %.4f  lr %.2e"
        logger.info(text, done, settings.epochs, loss, rate)
        if on_epoch is not None:
            on_epoch(done, loss)
    student.eval()
    _, epoch, weights = run.best or (0.0, run.epochs_done, run.result.state_dict())
    student.load_state_dict(weights)
    return epoch


class Reordered(nn.Module):
    """A teacher whose logits are in the order of the student's classes."""

    def __init__(self, teacher: nn.Module, order: Sequence[int]) -> None:
        """Store the teacher, and its index of each of the student's classes."""
        super().__init__()
        self.teacher, self.order = teacher, list(order)
        self.train(teacher.training)

    def forward(self, images: Tensor) -> Tensor:
        """Map images [batch, 3, height, width] to logits [batch, classes]."""
        logits: Tensor = self.teacher(images)
        return logits[:, self.order]


def _trained(
    trainer: "_Trainer",
    epoch: int,
    batches: Iterable[TrainBatch],
    checkpoint_path: Path | None,
) -> float:
    """Train for an epoch, and return its mean loss; where numbers stop being finite, the checkpoint is removed."""
    run = trainer.run
    # Random numbers depend only on seed, epoch and process, so a resumed run equals an uninterrupted one.
    random_seed(trainer.settings.seed * 100_003 + epoch, processes().index)
    run.scheduler.step(epoch)
    loss = trainer.epoch(batches)
    if diverged := _diverged(run, loss):
        if checkpoint_path is not None:
            # Training from it would diverge again, and it refuses the lower learning rate.
            checkpoint_path.unlink(missing_ok=True)
        raise RecipeError("training", diverged, "finite numbers", "lower --lr")
    for part in processes().gathered(run.skipped):
        run.skipped.update(part)
    return loss


def _new_run(
    student: nn.Module,
    settings: FinetuneSettings,
    identity: str,
    skipped: dict[str, str],
) -> RunState:
    """Create optimizer, learning rate schedule and weight average, before the first epoch."""
    undecayed = {
        f"{place}.{name}".removeprefix(".")
        for place, module in student.named_modules()
        for name in getattr(module, "no_weight_decay", set)()
    }
    groups = param_groups_weight_decay(
        student, settings.weight_decay, no_weight_decay_list=undecayed
    )
    optimizer = create_optimizer_v2(groups, opt="adamw", lr=settings.lr)
    scheduler, _ = create_scheduler_v2(
        optimizer,
        sched="cosine",
        num_epochs=settings.epochs,
        min_lr=settings.min_lr,
        warmup_lr=settings.min_lr,
        warmup_epochs=settings.warmup_epochs,
    )
    ema = None
    if settings.ema_decay:
        ema = ModelEmaV3(student, decay=settings.ema_decay, use_warmup=True)
    return RunState(
        student, optimizer, scheduler, ema, identity=identity, skipped=skipped
    )


def _joined(student: nn.Module) -> nn.Module:
    """Return the student for the forward pass; with several processes, one that averages gradients over them."""
    if processes().count == 1:
        return student
    # Each step has gradients for the same parameters, but not always for all: a head may be unused.
    static = DistributedDataParallelKwargs(static_graph=True)
    accelerator = Accelerator(device_placement=False, kwargs_handlers=[static])
    joined: nn.Module = accelerator.prepare_model(student)
    return joined


@dataclass(frozen=True, eq=False)
class _Trainer:
    """One epoch after another: `forward` is the student, or the wrapper that averages its gradients."""

    run: RunState
    forward: nn.Module
    teacher: nn.Module | None
    settings: FinetuneSettings

    def epoch(self, batches: Iterable[TrainBatch]) -> float:
        """Train on all images once; return the mean loss, over all processes."""
        run, total, seen = self.run, 0.0, 0
        device = next(run.model.parameters()).device
        self.forward.train()
        for part in run.model.modules():
            if _is_frozen(part):
                part.eval()
        try:
            for images, targets in batches:
                loss = self._step(images.to(device), targets.to(device))
                total += loss * len(images)
                seen += len(images)
        finally:
            self.forward.eval()
        sums = processes().gathered((total, seen))
        total = sum(part[0] for part in sums)
        seen = sum(part[1] for part in sums)
        if not seen:
            raise ImageError("batches", "an epoch without images", "at least one batch")
        run.epochs_done += 1
        return total / seen

    def _step(self, images: Tensor, targets: Tensor) -> float:
        run, settings = self.run, self.settings
        with _autocast(settings, images.device):
            logits = self.forward(images)
        logits, answers = logits.float(), self._answers(images)
        loss = F.cross_entropy(logits, targets, label_smoothing=settings.smoothing)
        if answers is not None:
            share = settings.distillation
            loss = (1 - share) * loss + share * F.cross_entropy(logits, answers)
        run.optimizer.zero_grad()
        loss.backward()
        if settings.clip_grad:
            nn.utils.clip_grad_norm_(run.model.parameters(), settings.clip_grad)
        run.optimizer.step()
        if run.ema is not None:
            run.ema.update(run.model, step=run.steps_done)
        run.steps_done += 1
        return loss.item()

    @torch.no_grad()
    def _answers(self, images: Tensor) -> Tensor | None:
        """Return the teacher's class of each image, int64 [batch]."""
        if self.teacher is None:
            return None
        with _autocast(self.settings, images.device):
            return self.teacher(images).argmax(dim=1)


def _is_frozen(part: nn.Module) -> bool:
    """Whether a module has parameters, and none of them is trained: then its statistics stay, too."""
    needs = [parameter.requires_grad for parameter in part.parameters()]
    return bool(needs) and not any(needs)


def _diverged(run: RunState, loss: float) -> str:
    """Return what is not finite after an epoch; "" where all is."""
    if not math.isfinite(loss):
        return f"a loss of {loss} in epoch {run.epochs_done}"
    if not all(value.isfinite().all() for value in run.model.parameters()):
        return f"weights that are no numbers after epoch {run.epochs_done}"
    return ""


def _autocast(
    settings: FinetuneSettings, device: torch.device
) -> AbstractContextManager[object]:
    return (
        torch.autocast(device.type, torch.bfloat16) if settings.amp else nullcontext()
    )
