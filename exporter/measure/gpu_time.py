"""Measure the GPU time of dense and pruned engines, interleaved, by trtexec or its like for TensorRT for RTX."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from exporter.core.base.settings import LEAST_ROUNDS
from exporter.core.base.targets import Runtime
from exporter.engines.gpu import clocks_of, gpu_uuid, sampled_clocks
from exporter.engines.manifest import (
    EngineManifest,
    profile_for,
    read_manifest,
)
from exporter.engines.runner import engine_here
from exporter.engines.trtexec import (
    Load,
    RunTimes,
    load_command,
    run_load,
    run_trtexec,
)
from exporter.measure.batch_sweep import AtBatch, BenchSettings
from exporter.measure.benchmark import (
    EngineRuns,
    Throughput,
    in_turns,
    summary,
)


@dataclass(frozen=True)
class EngineFile:
    """An engine file, the ONNX file it was built from, and its manifest."""

    onnx: Path
    path: Path
    manifest: EngineManifest


# The engines that run each batch size, by role: dense, pruned and, if it is measured, sliced.
Engines: TypeAlias = Mapping[int, Mapping[str, EngineFile]]


def engine_files(
    files: Mapping[str, Path],
    tool: Runtime,
    batches: Sequence[int],
    *,
    one_profile: bool = False,
) -> Engines:
    """Find the engines that a tool built of ONNX files, given by role, for each batch size.

    With `one_profile` each batch size has an engine of its own.
    """

    def engine_of(onnx: Path, batch: int) -> EngineFile:
        engine = engine_here(onnx, tool, batch if one_profile else 0)
        manifest = read_manifest(engine)
        profile_for(manifest, batch, engine.name)
        return EngineFile(onnx, engine, manifest)

    return {
        batch: {role: engine_of(onnx, batch) for role, onnx in files.items()}
        for batch in batches
    }


def gpu_time(
    turns: Sequence[RunTimes],
    batch: int,
    clock: str,
    line: tuple[str, ...],
    load: Load | None = None,
) -> Throughput:
    """Summarise the turns of one engine, one per round: the times of its compute. `line` is the command."""
    copied_in = np.concatenate([turn.copy_in_ms for turn in turns])
    computed = np.concatenate([turn.compute_ms for turn in turns])
    copied_out = np.concatenate([turn.copy_out_ms for turn in turns])
    rounds_ms = np.array([np.median(turn.compute_ms) for turn in turns])
    runs = EngineRuns(
        copy_in_ms=float(np.median(copied_in)),
        copy_out_ms=float(np.median(copied_out)),
        cuda_graph=all(turn.cuda_graph for turn in turns),
        line=line,
        load=load,
    )
    return replace(summary(batch, computed, rounds_ms, clock=clock), engine=runs)


# The program loads the engine each time: a turn is one second of runs.
A_TURN = ("--warmUp=200", "--duration=1")


@dataclass(frozen=True)
class Run:
    """What all engines of a benchmark are run with, in five rounds.

    `image` is the shape [channels, height, width] of an input. Raw images are read in the folder `raw`; None is
    the export folder. `plugin` is the CdfRetain library, for an engine that does not contain it.
    """

    image: Sequence[int]
    settings: BenchSettings
    plugin: Path | None = None
    raw: Path | None = None

    def command(
        self, engine: EngineFile, batch: int, raw: Path | None = None
    ) -> list[str]:
        """Return the command that times an engine on the raw images of a folder."""
        return load_command(
            engine.path,
            engine.manifest,
            self.image,
            batch,
            self.plugin,
            transfers=self.settings.transfers,
            raw=raw,
        )


def measure_engines(engines: Engines, mac_ratio: float, run: Run) -> Iterator[AtBatch]:
    """Measure all engines at each batch size by the GPU's clock; `mac_ratio` as of `AtBatch`."""
    for batch, named in engines.items():
        with sampled_clocks(gpu_uuid()) as clocks:
            times = engine_times(named, batch, run)
        yield replace(AtBatch.of(times, mac_ratio), gpu=clocks_of(clocks))


def engine_times(
    named: Mapping[str, EngineFile], batch: int, run: Run
) -> dict[str, Throughput]:
    """Measure engines in turns at one batch size, then each under load, if that is asked for; results by name."""
    turns: dict[str, list[RunTimes]] = {role: [] for role in named}
    for role, _ in in_turns(named, LEAST_ROUNDS, 0):
        turns[role].append(
            run_trtexec(run.command(named[role], batch, run.raw), *A_TURN)
        )
    measured = {}
    for role, engine in named.items():
        program = engine.manifest.settings.tool.program
        # For users to repeat: it reads the raw images of the export folder.
        line = tuple(run.command(engine, batch))
        measured[role] = gpu_time(
            turns[role], batch, program, line, _load(engine, batch, run)
        )
    return measured


def _load(engine: EngineFile, batch: int, run: Run) -> Load | None:
    settings = run.settings
    if not settings.load_s:
        return None
    command = run.command(engine, batch, run.raw)
    return run_load(command, batch, settings.load_s, settings.streams)
