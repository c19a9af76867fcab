"""List the models that can be pruned, or explain why one cannot.

The list has timm's models and those of star-export. `--why` also takes a Hugging Face id or folder, and examines
the architecture. No weights are downloaded.
"""

import argparse
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from exporter.cli.output import print_lines, show
from exporter.cli.setting_flags import add_flags, from_flags
from exporter.core.base.errors import RecipeError
from exporter.core.base.settings import changes_of
from exporter.models.request import ModelRequest

if TYPE_CHECKING:
    from exporter.models.listed import Answer

EXAMPLES = ("star-export models", "star-export models --why resnet50")
FAILS = "--why names a model that cannot be pruned"

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--why",
        metavar="NAME",
        help="Explain whether this model can be pruned, or why not.",
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

    request = from_flags(ModelRequest, arguments, {"name": arguments.why or ""})
    if arguments.why is not None:
        examined = _answer(request)
        record = {"accepted": examined.spec is not None, **vars(examined)}
        show(
            arguments,
            record,
            lambda: print_lines([f"{examined.name}: {_in_words(examined)}"]),
        )
        return 0 if examined.spec else 1
    for key in changes_of(request):
        raise RecipeError(key, "a value", "--why NAME beside it, a model to change")
    models = model_list()
    if not models.is_current:
        logger.warning(
            "the list was made with timm %s, but another version is installed: --why NAME examines a model",
            models.timm,
        )
    answers = [*models.answers.values()]
    refused = {model.name: model.reason for model in answers if not model.spec}
    lines = _lines(answers, refused=arguments.refused)
    show(
        arguments,
        {"accepted": models.accepted, "refused": refused},
        lambda: print_lines(lines),
    )
    return 0


def _answer(request: ModelRequest) -> "Answer":
    """Return the answer of the list, or else build the model."""
    from exporter.models.listed import check_name, listed

    known = listed(request)
    if known:
        return known
    check_name(request.name)
    from exporter.models.registry import support_of

    return support_of(request)


def _lines(answers: "Sequence[Answer]", *, refused: bool) -> Iterator[str]:
    rows = [model for model in answers if (model.spec is None) == refused]
    yield f"{len(rows)} models that {'cannot' if refused else 'can'} be pruned, of {len(answers)}"
    width = max(len(model.name) for model in rows)
    for model in rows:
        spec = model.spec
        if spec is None:
            yield f"{model.name:{width}}  {model.reason}"
            continue
        pixels = "×".join(map(str, spec.preprocessing.input_size[1:]))
        patches = "×".join(map(str, spec.grid))
        head = (
            "" if spec.head else "  gives an embedding; num_classes adds a classifier"
        )
        yield f"{model.name:{width}}  {pixels:>9} pixels  {patches:>7} patches{head}"


def _in_words(model: "Answer") -> str:
    spec = model.spec
    if spec is None:
        return f"cannot be pruned: {model.reason}"
    head = "" if spec.head else "; it gives an embedding: num_classes adds a classifier"
    return f"can be pruned: {spec.depth} blocks, {spec.num_patches} patches, {spec.dim} channels{head}"
