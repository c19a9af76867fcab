"""Build the TensorRT engines of an export folder: for this GPU, or without one by TensorRT for RTX.

Writes a manifest beside each engine and audits it: the data types of its layers, and the attention of every block.
With --plugin-source it writes the source of the CdfRetain plugin for a-STAR instead, and prints the command that
builds it.
"""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from exporter.cli.flags import add_file, add_folder
from exporter.cli.output import print_lines, show
from exporter.cli.setting_flags import add_flags, from_flags
from exporter.core.base.errors import RecipeError
from exporter.engines.manifest import EngineManifest
from exporter.engines.plugin_library import plugin_command, write_source
from exporter.engines.settings import BuildSettings
from exporter.report.engine_words import explain_audit

if TYPE_CHECKING:
    from exporter.serve.build import BuiltEngine

EXAMPLES = (
    "star-export build build/digits",
    "star-export build build/digits --batches 1,8",
    "star-export build build/digits --runtime tensorrt-rtx --sm 80,86,89,120",
    "star-export build --plugin-source plugin/",
)
FAILS = "an engine is not what its target promises: attention that is not fused, or a product that is not quantized"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_folder(parser, "?")
    text = "Write the plugin's source there, instead of a folder."
    add_file(parser, "--plugin-source", text, "DIR")
    add_flags(parser, BuildSettings)


def run(arguments: argparse.Namespace) -> int:
    """Build the engines and print their audits, or write the plugin's source.

    The exit code is 1 where an audit finds that an engine is not what its target promises.
    """
    if (arguments.folder is None) == (arguments.plugin_source is None):
        got = "neither" if arguments.folder is None else "a folder and --plugin-source"
        raise RecipeError("build", got, "an export folder, or --plugin-source DIR")
    if arguments.plugin_source is None:
        return _build(arguments)
    return _write_source(arguments)


def _write_source(arguments: argparse.Namespace) -> int:
    """Write the source and print the build command: neither TensorRT nor rich is needed for it."""
    out = arguments.plugin_source
    write_source(out)
    command = plugin_command(out)
    record = {"source": str(out), "command": command}
    show(arguments, record, lambda: print(command))
    return 0


def _build(arguments: argparse.Namespace) -> int:
    from exporter.serve.build import build_folder

    settings = from_flags(BuildSettings, arguments)
    built = build_folder(arguments.folder, settings, arguments.stages)
    show(arguments, built, lambda: _print(built))
    return int(any(engine.broken for engine in built))


def _print(built: "Sequence[BuiltEngine]") -> None:
    """Print the audit of each engine, then what is not as it should be."""
    for engine in built:
        manifest = engine.manifest
        print_lines([f"{engine.file}: {_built_by(manifest)}"])
        for batch, audit in zip(
            manifest.settings.batches, manifest.audits, strict=bool(manifest.audits)
        ):
            print_lines(f"  batch {batch}: {line}" for line in explain_audit(audit))
        print_lines(f"  {line}" for line in engine.slow)
    for engine in built:
        print_lines(
            f"not as the target promises: {engine.file}: {line}"
            for line in engine.broken
        )


def _built_by(manifest: EngineManifest) -> str:
    where, tool = manifest.built, manifest.settings.tool
    if tool.ahead:
        return f"{tool.title} {where.tensorrt}, for SM {where.sm}"
    return f"{tool.title} {where.tensorrt}, {where.gpu} (SM {where.sm}), driver {where.driver}"
