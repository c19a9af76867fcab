"""Say where weights do not tell an activation: those of CLIP's encoders are alike for GELU and QuickGELU."""

import logging
from collections.abc import Collection
from typing import Any

import timm
from torch import nn

from exporter.models.listed import plain_name

logger = logging.getLogger(__name__)

# timm's names of CLIP's encoders hold one of these.
GELU, QUICK_GELU = "_clip_", "_clip_quickgelu_"
# The argument that settles it.
ARGUMENT = "act_layer"
# So timm notes weights of which it has the network with another activation.
NATIVE = "natively QuickGELU"
# A key of the encoders that open_clip and OpenAI save, whichever the activation is.
CLASS_TOKEN = "class_embedding"


def log_activation(
    name: str,
    network: nn.Module,
    arguments: Collection[str],
    keys: Collection[str] = (),
) -> None:
    """Log a line where nothing says that the activation is the one that the weights were trained with.

    Args:
        name: The name of the network, which decides.
        network: What timm builds by that name.
        arguments: The names of the keyword arguments that were given: `act_layer` settles it.
        keys: Those of the weights; () for timm's own pretrained ones.
    """
    plain = plain_name(name)
    if GELU not in plain or QUICK_GELU in plain or ARGUMENT in arguments:
        return
    config: Any = getattr(network, "pretrained_cfg", None) or {}
    if not keys and NATIVE in " ".join(config.get("notes") or ()):
        reason = "timm notes that its weights were trained with QuickGELU"
    elif any(key.endswith(CLASS_TOKEN) for key in keys):
        reason = "the weights do not tell the activation that they were trained with"
    else:
        return
    quick = plain.replace(GELU, QUICK_GELU)
    if not timm.is_model(quick):
        quick = f"--model-kwargs {ARGUMENT}=quick_gelu"
    text = "%s: %s: %s computes GELU, which is taken; %s computes QuickGELU (--model-kwargs %s=gelu settles it)"
    logger.warning(text, name, reason, plain, quick, ARGUMENT)
