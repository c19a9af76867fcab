"""Files of other tokens than the network's: the line names the one change with which the file fits."""

from pathlib import Path
from typing import Any

import pytest
import timm
import torch

from exporter.core.base.errors import CheckpointError
from exporter.models.registry import load
from exporter.models.request import ModelRequest

SHAPE = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 3}
PLAIN, DISTILLED = "deit_tiny_patch16_224", "deit_tiny_distilled_patch16_224"
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": (PLAIN, {}),
    "distilled": (DISTILLED, {}),
    "registers": (PLAIN, {"reg_tokens": 4}),
    "no class token": (PLAIN, {"class_token": False, "global_pool": "avg"}),
    "pooled": (PLAIN, {"global_pool": "avg"}),
}
REMEDIES = {
    ("plain", "distilled"): f"give --model {PLAIN}",
    ("plain", "registers"): "leave out reg_tokens of --model-kwargs",
    ("distilled", "plain"): f"give --model {DISTILLED}",
    ("registers", "plain"): "give --model-kwargs reg_tokens=4",
    (
        "no class token",
        "plain",
    ): "give --model-kwargs class_token=False global_pool=avg",
    ("pooled", "plain"): "give --model-kwargs global_pool=avg",
    ("pooled", "no class token"): "leave out class_token of --model-kwargs",
}


@pytest.mark.parametrize(("file", "network"), [(a, b) for a in FORMS for b in FORMS])
def test_the_one_change_that_makes_a_file_fit(
    tmp_path: Path, file: str, network: str
) -> None:
    path = tmp_path / "weights.pth"
    name, more = FORMS[file]
    torch.save(
        timm.create_model(name, num_classes=5, **SHAPE, **more).state_dict(), path
    )
    name, more = FORMS[network]
    request = ModelRequest(name, checkpoint=path, model_kwargs={**SHAPE, **more})
    if file == network:
        load(request)
        return
    with pytest.raises(CheckpointError) as error:
        load(request)
    line = str(error.value)
    assert "unknown grid" not in line or (file, network) not in REMEDIES
    assert line.endswith(REMEDIES.get((file, network), ""))
