"""The run itself: build, train epoch by epoch, measure."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import timm
import torch
from timm.data import resolve_data_config
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import ModelEmaV3, random_seed
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

from exporter.errors import ModelError, RecipeError
from exporter.training.checkpoint import RunState
from exporter.training.data import train_loader
from exporter.training.settings import TrainSettings

__all__ = ["build_model", "data_config", "new_run", "top1", "train"]

Progress = Callable[[int, float, RunState], None]


def build_model(settings: TrainSettings, num_classes: int, **more: Any) -> nn.Module:
    """An untrained model of the settings' shape, the same for the same seed.

    Raises:
        ModelError: timm knows no such model, or the model takes no such keyword.
    """
    if not timm.is_model(settings.model):
        raise ModelError("model", repr(settings.model), "a name that timm knows")
    random_seed(settings.seed)
    try:
        model: nn.Module = timm.create_model(
            settings.model, num_classes=num_classes, **settings.model_kwargs, **more
        )
    except (TypeError, ValueError, AssertionError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelError(settings.model, reason, "keyword arguments that this model takes") from None
    return model


def data_config(model: nn.Module, settings: TrainSettings) -> dict[str, Any]:
    """The model's own preprocessing at the size it was built for, with what the settings replace.

    Raises:
        ModelError: The model has no patches, so it is no ViT.
    """
    patches = getattr(model, "patch_embed", None)
    size = getattr(patches, "img_size", None)
    if size is None:
        raise ModelError(settings.model, "a model without patch embedding", "a Vision Transformer")
    config: dict[str, Any] = resolve_data_config(
        {"input_size": (3, *size), **settings.preprocessing()}, model=model
    )
    return config


def new_run(settings: TrainSettings, num_classes: int, identity: str) -> RunState:
    """Model, optimizer, schedule and average, before the first epoch."""
    model = build_model(
        settings, num_classes, **({"dynamic_img_size": True} if settings.small_epochs else {})
    )
    if settings.device == "cpu":
        _spell_out_attention(model)
    model.to(settings.device)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=settings.lr, weight_decay=settings.weight_decay)
    scheduler, _ = create_scheduler_v2(
        optimizer,
        sched="cosine",
        num_epochs=settings.epochs,
        min_lr=settings.lr / 100,
        warmup_lr=settings.lr / 100,
        warmup_epochs=settings.warmup_epochs,
    )
    ema = ModelEmaV3(model, decay=settings.ema_decay, use_warmup=True) if settings.ema_decay else None
    return RunState(model, optimizer, scheduler, ema, identity)


def _spell_out_attention(model: nn.Module) -> None:
    """On a CPU the gradient of PyTorch's fused attention takes about twice as long as that of its parts."""
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            setattr(module, "fused_attn", False)  # noqa: B010  (nn.Module types attributes as modules)


def train(
    run: RunState, images: ImageFolder, settings: TrainSettings, save_to: Path, progress: Progress
) -> None:
    """Run the epochs that are left; a checkpoint follows each.

    Raises:
        RecipeError: The loss is no longer a number.
    """
    for epoch in range(run.epochs_done, settings.epochs):
        # Randomness is a function of seed and epoch: a resumed run draws what an unbroken one draws.
        random_seed(settings.seed * 100_003 + epoch)
        run.scheduler.step(epoch)
        loader = train_loader(images, settings, epoch)
        steps_before = epoch * len(loader)
        small = epoch < settings.small_epochs
        loss = _epoch(run, loader, settings, steps_before, small=small)
        if not loss < float("inf"):
            raise RecipeError("training", f"a loss of {loss} in epoch {epoch + 1}", "a number", "lower --lr")
        run.epochs_done = epoch + 1
        run.save(save_to)
        progress(epoch, loss, run)


def _epoch(
    run: RunState,
    loader: DataLoader[tuple[Tensor, Tensor]],
    settings: TrainSettings,
    steps: int,
    *,
    small: bool,
) -> float:
    """One pass over the images; gives back the mean loss."""
    run.model.train()
    total, seen = 0.0, 0
    for step, (images, labels) in enumerate(loader, start=steps):
        x, y = images.to(settings.device), labels.to(settings.device)
        if small:
            x = F.interpolate(x, scale_factor=0.5, mode="bicubic", antialias=True)
        with _autocast(settings):
            logits = run.model(x)
        loss = F.cross_entropy(logits.float(), y, label_smoothing=settings.smoothing)
        run.optimizer.zero_grad()
        loss.backward()
        if settings.clip_grad:
            nn.utils.clip_grad_norm_(run.model.parameters(), settings.clip_grad)
        run.optimizer.step()
        if run.ema is not None:
            run.ema.update(run.model, step=step)
        total, seen = total + loss.item() * len(labels), seen + len(labels)
    return total / seen


def _autocast(settings: TrainSettings) -> Any:
    if not settings.amp:
        return nullcontext()
    return torch.autocast(torch.device(settings.device).type, torch.bfloat16)


@torch.inference_mode()
def top1(model: nn.Module, images: ImageFolder, settings: TrainSettings) -> float:
    """Share of the images whose highest logit is their class, computed in float32."""
    model.eval()
    loader = DataLoader(images, batch_size=settings.batch_size, num_workers=settings.workers)
    right = sum(int((model(x.to(settings.device)).argmax(1).cpu() == y).sum()) for x, y in loader)
    return right / len(images)
