"""List the models that can be pruned, or explain why one cannot.

The list has timm's models and those of star-export. `--why` also takes a Hugging Face id or folder, and examines
the architecture. No weights are downloaded.
"""

import argparse
import logging
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from exporter.cli.output import print_lines, show
from exporter.models.request import ModelRequest
from exporter.settings.flags import add_flags, from_flags

if TYPE_CHECKING:
    from exporter.models.listed import Answer

EXAMPLES = (
    "star-export models",
    "star-export models --why resnet50",
)
FAILS = "--why names a model that cannot be pruned"

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--why", metavar="NAME", help="Explain whether this model can be pruned, or why not."
    )
    parser.add_argument(
        "--refused",
        action="store_true",
        help="List models that cannot be pruned, with reasons.",
    )
    add_flags(parser, ModelRequest, ("num_classes", "model_kwargs"))


def run(arguments: argparse.Namespace) -> int:
    """Print the list or the explanation; the exit code is 1 for a model that cannot be pruned, else 0."""
    from exporter.models.listed import model_list

    if arguments.why is not None:
        answer = _answer(arguments)
        told = {"accepted": answer.shape is not None, **vars(answer)}
        show(arguments, told, lambda: print_lines([f"{answer.name}: {_in_words(answer)}"]))
        return 0 if answer.shape else 1
    models = model_list()
    if not models.is_current:
        logger.warning(
            "the list was made with timm %s, but another version is installed: --why NAME examines a model",
            models.timm,
        )
    refused = {each.name: each.reason for each in models.answers if not each.shape}
    lines = _lines(models.answers, refused=arguments.refused)
    show(
        arguments, {"accepted": models.accepted, "refused": refused}, lambda: print_lines(lines)
    )
    return 0


def _answer(arguments: argparse.Namespace) -> "Answer":
    """Return the answer of the list, or else build the model."""
    from exporter.models.listed import listed

    request = from_flags(ModelRequest, arguments, {"name": arguments.why})
    as_named = request.num_classes is None and not request.model_kwargs
    if as_named and (found := listed(arguments.why)):
        return found
    from exporter.models.registry import support_of

    return support_of(request)


def _lines(answers: "Sequence[Answer]", *, refused: bool) -> Iterator[str]:
    shown = [each for each in answers if (each.shape is None) == refused]
    yield f"{len(shown)} models that {'cannot' if refused else 'can'} be pruned, of {len(answers)}"
    width = max(len(each.name) for each in shown)
    for each in shown:
        if each.shape is None:
            yield f"{each.name:{width}}  {each.reason}"
            continue
        pixels, patches = (
            "×".join(map(str, size)) for size in (each.shape.pixels, each.shape.grid)
        )
        head = (
            "" if each.shape.own_head else "  gives an embedding; num_classes adds a classifier"
        )
        yield f"{each.name:{width}}  {pixels:>9} pixels  {patches:>7} patches{head}"


def _in_words(answer: "Answer") -> str:
    shape = answer.shape
    if shape is None:
        return f"cannot be pruned: {answer.reason}"
    head = "" if shape.own_head else "; it gives an embedding: num_classes adds a classifier"
    patches = math.prod(shape.grid)
    return f"can be pruned: {shape.blocks} blocks, {patches} patches, {shape.channels} channels{head}"
