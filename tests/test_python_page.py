"""The chain of docs/python.md runs as it stands there."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.vits import make_model, make_vit, random_images

PAGE = Path(__file__).parent.parent / "docs/python.md"


@pytest.mark.ort
@pytest.mark.slow
def test_the_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict[str, Any] = {"model": make_model(num_classes=3), "images": random_images(make_vit(), 8)}
    exec(code, names)
    assert names["parity"].passed
    assert {path.name for path in tmp_path.iterdir()} == {"dense.onnx", "star.onnx"}
    assert isinstance(names["pruned"], torch.nn.Module)
