"""Commands on the deployment machine, where PyTorch is not installed."""

import subprocess
import sys

# All that is installed there, by the names of imports: what the wheel requires, ONNX Runtime, and what these need.
INSTALLED = ("numpy", "PIL", "rich", "msgspec", "onnx", "onnxruntime")
THEIRS = (
    "pygments",
    "markdown_it",
    "mdurl",
    "google",
    "flatbuffers",
    "packaging",
    "ml_dtypes",
    "typing_extensions",
)

# As on that machine: importing anything else fails.
BOX = """
import sys

class Bare:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in {allowed} and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Bare())
from exporter.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def on_the_machine(
    *arguments: object, without: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    allowed = {"exporter", *INSTALLED, *THEIRS} - {*without}
    command = [sys.executable, "-c", BOX.format(allowed=allowed), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
