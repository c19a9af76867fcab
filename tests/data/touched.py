"""Files that say their own names."""

from pathlib import Path

__all__ = ["touch"]


def touch(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return root
