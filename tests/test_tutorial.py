"""The notebook of the docs runs, and shows what it gave when it ran."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parent.parent / "docs/tutorial.ipynb"


def cells(kind: str) -> list[dict[str, Any]]:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


@pytest.mark.exhaustive
@pytest.mark.ort
def test_its_cells_run_one_after_another(tmp_path: Path) -> None:
    """Without a kernel: no cell uses more than Python."""
    script = tmp_path / "tutorial.py"
    script.write_text(
        "\n\n".join("".join(cell["source"]) for cell in cells("code")), encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("top-1") == 3


def test_every_cell_has_run_without_an_error() -> None:
    outputs = [output for cell in cells("code") for output in cell["outputs"]]
    assert all(output["output_type"] != "error" for output in outputs)
    assert all(output.get("name") != "stderr" for output in outputs)
    shown = json.dumps(outputs)
    assert "passed" in shown and "top-1" in shown
