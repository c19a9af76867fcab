"""The table of verified models: what has a record is not verified again, and a failure is named."""

from pathlib import Path

import pytest

from exporter.models.catalogue import support_of
from exporter.models.networks import ModelRequest
from tests.benchmarks.scripts import script

model_table = script("model_table.py")
# The first two are one network with narrow blocks.
NAMES = ("vit_tiny_patch16_224", "deit_small_patch16_224", "deit3_small_patch16_224")


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models whose parity was checked: a model with scales of branches fails."""
    seen: list[str] = []

    def agrees(pruned: object, threads: int) -> bool:
        seen.append(pruned.vit.spec.name)  # type: ignore[attr-defined]
        return "deit3" not in seen[-1]

    monkeypatch.setattr(model_table, "_agrees", agrees)
    answers = [support_of(ModelRequest(name, model_kwargs={"depth": 1})) for name in NAMES]
    monkeypatch.setattr(model_table, "survey", lambda: iter(answers))
    return seen


def test_every_network_is_checked_once(
    checked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--all", "--folder", str(tmp_path)]
    assert model_table.main(arguments) == 1
    assert capsys.readouterr().out == "3 names, 2 networks, 1 failed: deit3_small_patch16_224\n"
    assert model_table.main(arguments) == 1
    assert checked == [NAMES[0], NAMES[2]]
    assert model_table.main([*arguments, "--only", "vit_tiny", "deit_small"]) == 0


def test_a_family_is_a_row(checked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--folder", str(tmp_path), "--only", "DeiT-III"]
    for _ in range(2):
        assert model_table.main(arguments) == 1
        *_, row = capsys.readouterr().out.splitlines()
        assert row == (
            "| DeiT-III | `deit3_small_patch16_224` | 4.60 | 2.62 | bit for bit | **failed** | **failed** |"
        )
    assert checked == ["deit3_small_patch16_224"] * 2
