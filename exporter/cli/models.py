"""List the models that can be pruned, or explain why one cannot.

Nothing is downloaded: only architectures are examined. A model may also be a folder in Hugging Face's format.
"""

import argparse
from collections.abc import Iterator
from typing import Any

from exporter.settings import add_flags, from_flags
from exporter.workflows.recipe import Recipe

__all__ = ["EXAMPLES", "FAILS", "add_arguments", "run"]

EXAMPLES = (
    "star-export models",
    "star-export models --why resnet50",
)
FAILS = "--why names a model that cannot be pruned"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--why", metavar="NAME", help="Explain whether this model can be pruned, or why not.")
    parser.add_argument(
        "--refused", action="store_true", help="List models that cannot be pruned, with reasons."
    )
    add_flags(parser, Recipe, ("num_classes", "model_kwargs"))


def run(arguments: argparse.Namespace) -> int:
    """Print the list or the explanation; the exit code is 0."""
    from exporter.cli.output import print_json, print_lines  # noqa: PLC0415
    from exporter.models.catalogue import support_of, survey  # noqa: PLC0415
    from exporter.models.registry import ModelRequest  # noqa: PLC0415

    if arguments.why is not None:
        recipe = from_flags(Recipe, arguments)
        request = ModelRequest(
            arguments.why, num_classes=recipe.num_classes, model_kwargs=recipe.model_kwargs
        )
        answer = support_of(request)
        if arguments.json:
            print_json({"accepted": answer.spec is not None, **vars(answer)})
        else:
            print_lines([f"{answer.name}: {_in_words(answer)}"])
        return 0
    answers = list(survey())
    if arguments.json:
        accepted = {each.name: {"own_head": each.own_head} for each in answers if each.spec}
        refused = {each.name: each.reason for each in answers if not each.spec}
        print_json({"accepted": accepted, "refused": refused})
    else:
        print_lines(_lines(answers, refused=arguments.refused))
    return 0


def _lines(answers: list[Any], *, refused: bool) -> Iterator[str]:
    """Return one line per model."""
    shown = [each for each in answers if (each.spec is None) == refused]
    yield f"{len(shown)} models that {'cannot' if refused else 'can'} be pruned, of {len(answers)}"
    width = max(len(each.name) for each in shown)
    for each in shown:
        if each.spec is None:
            yield f"{each.name:{width}}  {each.reason}"
            continue
        pixels, patches = (
            "×".join(map(str, s)) for s in (each.spec.preprocessing.input_size[1:], each.spec.grid)
        )
        head = "" if each.own_head else "  gives an embedding; --num-classes adds a classifier"
        yield f"{each.name:{width}}  {pixels:>9} pixels  {patches:>7} patches{head}"


def _in_words(answer: Any) -> str:
    spec = answer.spec
    if spec is None:
        return f"cannot be pruned: {answer.reason}"
    head = "" if answer.own_head else "; it gives an embedding: --num-classes adds a classifier"
    return f"can be pruned: {spec.depth} blocks, {spec.num_patches} patches, {spec.dim} channels{head}"
