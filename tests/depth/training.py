"""Training for searches: quick, repeatable, and with a failure where a test wants one."""

import torch
from torch import nn

from exporter.depth.choose import Stage, Train
from tests.power_cuts import PowerCutError


def nudge(until: int = 9, seen: list[Stage] | None = None) -> Train:
    """Training that changes all weights and scores by the stage's seed, and fails at the stage `until`."""

    def train(student: nn.Module, stage: Stage) -> None:
        if stage.index == until:
            raise PowerCutError
        if seen is not None:
            seen.append(stage)
        generator = torch.Generator().manual_seed(stage.index)
        with torch.no_grad():
            for parameter in student.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))

    return train
