"""Hooks of mkdocs: pages that are made from the code, and pages that lie outside docs/.

The reference of the verbs comes from the parser of the command line; READMEs of other folders become pages.
"""

import argparse
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import exporter
from exporter.cli.main import build_parser
from exporter.core.base.settings import fields_of, sections_of
from exporter.jobs.recipe import Recipe
from exporter.training.settings import FinetuneSettings

ROOT = Path(__file__).parent.parent
VERBS, NAMES = "<!-- the verbs -->", "<!-- the public names -->"
# Files outside docs/, by their path from the root, and the pages that they become.
OUTSIDE = {
    "engines/README.md": "recipes.md",
    "plugins/README.md": "plugin.md",
    "plugins/tensorrt/README.md": "plugin-build.md",
    "calib_data/README.md": "calibration-data.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that do not lie in docs/."""
    from mkdocs.structure.files import File  # noqa: PLC0415  (tests need only the pages)

    pages = {
        page: inside((ROOT / path).read_text("utf-8"), path)
        for path, page in OUTSIDE.items()
    }
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Let links of a page in docs/ to files outside lead to their pages; list verbs and public names."""
    lies_outside = page.file.src_uri in OUTSIDE.values()
    markdown = (
        markdown if lies_outside else inside(markdown, f"docs/{page.file.src_uri}")
    )
    return markdown.replace(NAMES, public_names()).replace(VERBS, verbs())


def inside(markdown: str, path: str) -> str:
    """Return a file's text with links as they are within docs/; `path` is that of the file, from the root."""

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[1]))
        place = OUTSIDE.get(target, posixpath.relpath(target, "docs"))
        return f"]({place}{link[2] or ''})"

    return LINK.sub(moved, markdown)


def public_names() -> str:
    """Return a block for every public name, which mkdocstrings fills from its docstring and signature."""
    blocks = (
        f"::: exporter.{module}.{attribute}\n    options:\n      heading: exporter.{name}"
        for name, (module, attribute) in exporter._PUBLIC.items()
    )
    return "\n\n".join(blocks)


def verbs() -> str:
    """Return the reference of all verbs as Markdown, from the parser."""
    lines = []
    for words, verb in _verbs(build_parser(), ()):
        lines += [
            f"## {' '.join(words)}\n",
            f"{_escaped(verb.description or '')}\n",
            *_flags(verb),
            "",
        ]
    return "\n".join((*lines, *_keys()))


def _keys() -> Iterator[str]:
    """Yield a table of what a recipe takes beside the flags: the keys of its tables."""
    yield "## Keys of a recipe that are no flag\n"
    yield "| key | is |\n|---|---|"
    tables: dict[str, type] = {**sections_of(Recipe), "training": FinetuneSettings}
    for table, settings in tables.items():
        for name, field in fields_of(settings).items():
            if not field.has_flag and (table, name) != ("training", "seed"):
                yield f"| `[{table}] {name}` | {_escaped(field.help)} |"


def _verbs(
    parser: argparse.ArgumentParser, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Yield every verb with its words; verbs of a verb follow it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, verb in action.choices.items():
                yield (*words, name), verb
                yield from _verbs(verb, (*words, name))


def _flags(verb: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the rows of a table of flags."""
    flags = [
        action
        for action in verb._actions
        if action.help not in (None, argparse.SUPPRESS)
        and not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
    ]
    if not flags:
        return
    yield "| flag | is |\n|---|---|"
    for flag in flags:
        names = ", ".join(flag.option_strings) or flag.metavar or flag.dest
        value = "" if flag.nargs == 0 or not flag.option_strings else _value(flag)
        text = (flag.help or "").replace("%%", "%")
        yield f"| `{names}{value}`{' (required)' if flag.required else ''} | {_escaped(text)} |"


def _value(action: argparse.Action) -> str:
    name = action.metavar or action.dest.upper()
    return f" {' '.join(name) if isinstance(name, tuple) else name}".replace("|", "\\|")


def _escaped(text: str) -> str:
    """Return text in which nothing is Markdown."""
    return re.sub(r"([<>*_|\[\]])", r"\\\1", " ".join(text.split()))
