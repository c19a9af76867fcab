"""Name the sources of a model's facts, and say which of them are guesses together with what settles them."""

import logging
from collections.abc import Collection
from functools import cache
from typing import Any

from exporter.core.base.records import GUESS, ModelSpec
from exporter.models.request import PREPROCESS_KEYS

logger = logging.getLogger(__name__)

REQUEST = "the request"
# Where a request gives all of these, what comes with the name is not read, and nothing is guessed.
WHOLE_PREPROCESSING = {*PREPROCESS_KEYS} - {"crop_rounding"}
SETTLED_BY = "model.preprocess in a recipe, or --set model.preprocess.KEY=VALUE"


def guessed_for(model: Any) -> str:
    """Return the source of the preprocessing of a module: that of others with its name or of its class."""
    config = getattr(model, "pretrained_cfg", None) or {}
    name = config.get("architecture")
    known = (
        f"timm's for {name}"
        if name
        else f"that of most models of the class {type(model).__name__}"
    )
    return f"{GUESS}{known}"


def overridden(source: str, keys: Collection[str], by: str = REQUEST) -> str:
    """Return the source of facts of which something else gives some, or the whole preprocessing."""
    if not keys:
        return source
    if set(keys) >= WHOLE_PREPROCESSING:
        return by
    return f"{source}; {', '.join(sorted(keys))} by {by}"


@cache  # a command resolves its model more than once
def warn_once(line: str) -> None:
    """Log a line that would come again."""
    logger.warning("%s", line)


def log_guess(spec: ModelSpec) -> None:
    """Log one line where nothing says how a model's images are prepared, and what settles it."""
    source = spec.sources.preprocessing
    if source.startswith(GUESS):
        keys = sorted(WHOLE_PREPROCESSING)
        values = ", ".join(f"{key} {getattr(spec.preprocessing, key)}" for key in keys)
        text = "%s: how images are prepared is %s (%s); these keys of %s settle it"
        logger.warning(text, spec.name, source, values, SETTLED_BY)
