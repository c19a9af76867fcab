"""A run's state comes back whole, into the same run alone."""

from functools import partial
from pathlib import Path

import pytest
import torch
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3
from torch import nn

from exporter.core.base.errors import ArtefactError, OutputError
from exporter.core.base.files import Unfinished
from exporter.training import checkpoint
from exporter.training.checkpoint import RunState


def run(seed: int, *, averaged: bool = True, identity: str = "this run") -> RunState:
    """A run of one linear layer, with weights of its own."""
    torch.manual_seed(seed)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = CosineLRScheduler(optimizer, t_initial=4)
    ema = ModelEmaV3(model, 0.5) if averaged else None
    return RunState(model, optimizer, scheduler, ema, identity=identity, skipped={})


def step(state: RunState) -> None:
    """One step of training, on inputs that are always the same."""
    state.optimizer.zero_grad()
    state.model(torch.ones(4, 3)).square().sum().backward()
    state.optimizer.step()
    if state.ema is not None:
        state.ema.update(state.model)
    state.steps_done += 1


def values(state: RunState) -> list[torch.Tensor]:
    averaged = [] if state.ema is None else list(state.ema.state_dict().values())
    return [*state.model.state_dict().values(), *averaged]


@pytest.mark.parametrize("averaged", [True, False])
def test_the_next_step_is_the_one_that_would_have_come(
    tmp_path: Path, averaged: bool
) -> None:
    """Which takes weights, averages and the optimizer's moments alike; what was skipped comes back too."""
    whole, resumed = run(0, averaged=averaged), run(1, averaged=averaged)
    step(whole)
    whole.epochs_done = 1
    whole.skipped["a.png"] = "torn"
    whole.save(tmp_path / "run.ckpt")
    resumed.skipped["b.png"] = "gone"
    assert resumed.restore(tmp_path / "run.ckpt")
    assert (resumed.epochs_done, resumed.steps_done) == (1, 1)
    assert resumed.skipped == {"a.png": "torn", "b.png": "gone"}
    step(whole)
    step(resumed)
    assert all(map(torch.equal, values(whole), values(resumed)))


def test_another_runs_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    run(0, identity="another run").save(tmp_path / "run.ckpt")
    state = run(1)
    before = [value.clone() for value in values(state)]
    with pytest.raises(ArtefactError, match=r"run\.ckpt .* other settings"):
        state.restore(tmp_path / "run.ckpt")
    assert all(map(torch.equal, before, values(state)))


@pytest.mark.parametrize(
    "content", ["cut", b"text", b"", torch.zeros(3), [1], {"epochs_done": 1}]
)
def test_what_is_no_checkpoint_is_refused(tmp_path: Path, content: object) -> None:
    path = tmp_path / "run.ckpt"
    run(0).save(path)
    if content == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(
        ArtefactError, match=r"run\.ckpt .* cannot be read .* an unfinished training"
    ):
        run(0).restore(path)


def test_a_full_disk_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise RuntimeError(
            "[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0\nframe #0"
        )

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OutputError, match="unexpected pos 64 vs 0"):
        Unfinished(tmp_path / "w.ckpt", "training", "job").replace(
            partial(checkpoint._write, {})
        )
    assert not [*tmp_path.iterdir()]
