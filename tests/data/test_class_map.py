"""A class map is a JSON object of names and indices; `list_images` tests what else it may be."""

import json
from pathlib import Path

import pytest

from exporter.data.class_map import read_class_map
from exporter.errors import ImageError


def test_names_and_indices(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text(json.dumps({"cat": 281, "dog": 207}))
    assert read_class_map(path, 1000) == read_class_map(path, None) == {"cat": 281, "dog": 207}
    with pytest.raises(ImageError, match=r"281 for 'cat' \| need a class index from 0 below 200"):
        read_class_map(path, 200)
