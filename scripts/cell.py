"""Run the tests on one row of scripts/matrix.toml: versions of Python and of packages, in a throw-away environment.

    python scripts/cell.py oldest
    python scripts/cell.py between tests/core/lower/test_export.py tests/models

It installs this checkout with its extra `dev` under the row's pins (6 GB, with PyTorch's CUDA libraries), runs
pytest with the remaining arguments, all tests by default, and removes the environment. The last line says the row
and the exit code, which is pytest's, or pip's where it cannot install. `--list` prints the rows as JSON, for CI.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
MATRIX: dict[str, dict[str, object]] = tomllib.loads(
    (ROOT / "scripts/matrix.toml").read_text("utf-8")
)


def interpreter(version: str) -> str:
    """Return the path of Python `version`, e.g. "3.12": this one, one on PATH, or pyenv's; SystemExit for none."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    of_pyenv = sorted(versions.glob(f"{version}.*/bin/python"))
    python = str(of_pyenv[-1]) if of_pyenv else shutil.which(f"python{version}")
    if python is None:
        raise SystemExit(
            f"Python {version} | got none on PATH and none of pyenv | need it for this cell"
        )
    return python


def run_cell(name: str, arguments: list[str]) -> int:
    """Run one cell and return its exit code."""
    cell = MATRIX[name]
    with tempfile.TemporaryDirectory(prefix=f"cell-{name}-") as folder:
        place = Path(folder)
        constraints, python = place / "constraints.txt", str(place / "venv/bin/python")
        pins = cell["pins"]
        assert isinstance(pins, list)
        constraints.write_text("\n".join(pins), "utf-8")
        subprocess.run(
            [interpreter(str(cell["python"])), "-m", "venv", place / "venv"], check=True
        )
        install = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir"]
        installed = subprocess.run(
            [*install, "--constraint", constraints, f"{ROOT}[dev]"],
            cwd=ROOT,
            check=False,
        )
        if installed.returncode:
            return installed.returncode
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        tests = [python, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
        return subprocess.run(tests, cwd=ROOT, env=environment, check=False).returncode


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description="Run the tests on one row of scripts/matrix.toml."
    )
    parser.add_argument("cell", nargs="?", choices=MATRIX, help="name of the row")
    parser.add_argument("--list", action="store_true", help="print the rows as JSON")
    options, arguments = parser.parse_known_args()
    if options.list:
        print(
            json.dumps(
                [
                    {"cell": name, "python": row["python"]}
                    for name, row in MATRIX.items()
                ]
            )
        )
        return 0
    if options.cell is None:
        parser.error("name a cell")
    code = run_cell(options.cell, arguments)
    print(f"cell {options.cell}: exit code {code}")
    return code


if __name__ == "__main__":
    sys.exit(main())
