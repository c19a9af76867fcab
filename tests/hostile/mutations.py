"""Random changes of values, JSON, TOML, arrays and bytes; the same random state makes the same change."""

import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx

__all__ = [
    "VALUES",
    "WORDS",
    "bytes_of",
    "changed_json",
    "changed_onnx",
    "changed_text",
    "changed_toml",
    "changed_zip",
    "toml_of",
]

Array = np.ndarray[Any, Any]

# What is put where a value belongs. Counts that no machine has room for are in: they are to be refused.
WORDS = (
    *("", " ", "0", "-1", "1", "2", "0.5", "1.5", "-0.0", "nan", "inf", "-inf", "1e400", "1e-400", "0x10"),
    *("2147483647", "2147483648", "-2147483649", "9223372036854775808", "1" + "0" * 30, "9" * 5001),
    *("None", "null", "True", "[]", "{}", "a=", "=1", "a=1", "1=0.5", "1=nan", "1,2", "1,,2", ",", "auto"),
    *(
        "ä",
        "\u202eabc",
        "a\nb",
        "a\tb",
        "%s",
        "%(prog)s",
        "{0}",
        "~",
        ".",
        "..",
        "/",
        "/dev/null",
        "/dev/zero",
    ),
    *(
        "/nonexistent/x",
        "x" * 300,
        "x/" * 2000,
        "star",
        "tome",
        "all",
        "paper",
        "cpu",
        "cuda:99",
        "meta",
        "mps",
    ),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**70), 0.5, 1.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", "x", "\u202e", "9" * 5001, "../../etc", [], {}, [[]], {"": None}, [None], {"x": {"x": []}}),
)


def bytes_of(random: Random, content: bytes) -> bytes:
    """Flip, cut, repeat or insert bytes; the result differs."""
    if not content:
        return b"\0"
    place, kind = random.randrange(len(content)), random.randrange(4)
    if kind == 0:
        return content[:place] + bytes([content[place] ^ (1 << random.randrange(8))]) + content[place + 1 :]
    if kind == 1:
        return content[:place]
    if kind == 2:
        return content[:place] + random.randbytes(random.choice((1, 8, 1000))) + content[place:]
    return content + content[place:]


def changed_text(random: Random, text: str) -> str:
    """Change one word of a text, or its bytes."""
    words = text.split(" ")
    if random.random() < 0.5:
        words[random.randrange(len(words))] = random.choice(WORDS)
        return " ".join(words)
    return bytes_of(random, text.encode()).decode(errors="replace")


def changed_json(random: Random, text: str) -> str:
    """Change, remove, add or rename one value at any depth of a JSON text; rarely its bytes."""
    if random.random() < 0.1:
        return changed_text(random, text)
    whole = [json.loads(text)]
    places = list(_places(whole))
    parent, key = random.choice(places)
    _change(random, parent, key)
    return json.dumps(whole[0] if whole else None)


def changed_toml(random: Random, table: Mapping[str, Any]) -> str:
    """Change one value or key of a table, as TOML; rarely the bytes of the text."""
    whole = [deepcopy(dict(table))]
    parent, key = random.choice(list(_places(whole))[1:])
    _change(random, parent, key)
    text = toml_of(whole[0])
    return changed_text(random, text) if random.random() < 0.1 else text


def toml_of(table: Mapping[str, Any]) -> str:
    """A table as TOML, a key a line."""
    return "\n".join(f"{json.dumps(name)} = {_literal(value)}" for name, value in table.items())


def changed_zip(random: Random, path: Path) -> None:
    """Change one member of an .npz: its type, shape, values or name, or leave it out; rarely the file's bytes."""
    if random.random() < 0.1:
        path.write_bytes(bytes_of(random, path.read_bytes()))
        return
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    name = random.choice(sorted(arrays))
    array = np.atleast_1d(arrays.pop(name))
    is_text = array.dtype.kind in "US"
    made = random.choice(SHAPES if is_text else (*SHAPES, *NUMBERS))(array)
    if made is not None:
        arrays[random.choice((name, name, name, f"{name}x", "x"))] = made
    np.savez(path, **arrays)


def changed_onnx(random: Random, path: Path) -> None:
    """Change, remove, add or rename one entry of a model's metadata."""
    model = onnx.load(path)
    entries = {each.key: each.value for each in model.metadata_props}
    key = random.choice(sorted(entries))
    value = entries.pop(key)
    if random.random() < 0.8:
        is_json = value.startswith(("{", "["))
        value = (
            changed_json(random, value) if is_json else random.choice((*WORDS, changed_text(random, value)))
        )
        entries[key if random.random() < 0.9 else random.choice((f"{key}x", ""))] = value
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, entries)
    path.write_bytes(model.SerializeToString())


SHAPES: tuple[Callable[[Array], Array | None], ...] = (
    lambda array: None,
    lambda array: array[:0],
    lambda array: array[:1],
    lambda array: array[..., :-1],
    lambda array: array[None],
    lambda array: array.reshape(-1),
    lambda array: array.T,
    lambda array: np.asarray(array.flat[0]),
    lambda array: np.repeat(array, 2, axis=0) if array.ndim else array,
    lambda array: array.astype(str),
    lambda array: np.full(array.shape, np.nan, np.float32),
)
NUMBERS: tuple[Callable[[Array], Array | None], ...] = (
    lambda array: array.astype(np.float64),
    lambda array: array.astype(np.int8),
    lambda array: array.astype(np.complex64),
    lambda array: array == 0,
    lambda array: np.full_like(array, -1),
    lambda array: np.full(array.shape, np.inf, np.float32),
    lambda array: np.full(array.shape, np.iinfo(np.int64).max),
)


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the parent and the key of every value, the whole first."""
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    for key in keys:
        yield node, key
        if isinstance(node[key], dict | list):
            yield from _places(node[key])


def _change(random: Random, parent: Any, key: Any) -> None:
    value, kind = parent[key], random.randrange(8)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, dict):
        parent[random.choice(("", "x", "seed", f"{key}s", key.upper()))] = parent.pop(key)
    elif kind == 2 and isinstance(parent, list):
        parent.insert(key, value)
    elif kind == 3 and isinstance(value, int | float) and not isinstance(value, bool):
        parent[key] = random.choice((-value, value + 1, value * 1e9, value / 3, str(value), [value]))
    elif kind == 4:
        for _ in range(random.choice((1, 5, 300))):
            value = [value]
        parent[key] = value if random.random() < 0.5 else [value[0]]
    else:
        parent[key] = deepcopy(random.choice(VALUES))  # which a later change may change


def _literal(value: Any) -> str:
    """A value of TOML; what TOML does not have stays as JSON writes it, which is an error there."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)} = {_literal(each)}' for key, each in value.items())}}}"
    return json.dumps(value)
