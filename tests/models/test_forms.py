"""Every form of files that is no checkpoint of one network: its line, and what the line says to do, done."""

import json
import pickle
import re
import runpy
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import huggingface_hub
import numpy
import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict_saver import save as save_parts
from torchvision.models import VisionTransformer
from transformers import ViTConfig, ViTForImageClassification

from exporter.core.base.errors import CheckpointError
from exporter.core.vit.protocol import PrunableViT
from exporter.models.registry import describe, load
from exporter.models.request import ModelRequest
from tests.vits import make_model

NAME = "vit_tiny_patch16_224"
SHAPE: dict[str, Any] = {
    "img_size": 16,
    "patch_size": 8,
    "embed_dim": 48,
    "depth": 1,
    "num_heads": 3,
}


@pytest.fixture(scope="module")
def network() -> Any:
    return make_model(seed=1, **SHAPE)


def small() -> Any:
    return timm.create_model(NAME, num_classes=7, **SHAPE).eval()


def loaded(path: Path, **more: Any) -> PrunableViT:
    return load(ModelRequest(NAME, path, model_kwargs={**SHAPE, **more}))


def line_of(path: Path, **more: Any) -> str:
    """The line of a file that is refused, without its path."""
    with pytest.raises(CheckpointError) as caught:
        loaded(path, **more)
    line = str(caught.value)
    assert line.isprintable() and line.startswith(str(path))
    return line.removeprefix(f"{path} | ")


def run(text: str, names: dict[str, Any]) -> None:
    """Run the code in a line: its first call, wherever it stands."""
    begin = re.search(r"(?:torch|timm|model|huggingface_hub)\.", text)
    assert begin
    code = text[begin.start() :].partition(", then ")[0]
    exec(code, {"torch": torch, "timm": timm, "numpy": numpy, **names})


def assert_same(path: Path, network: nn.Module) -> None:
    state = loaded(path).model.state_dict()
    assert all(
        torch.equal(value, state[key]) for key, value in network.state_dict().items()
    )


# Forms of which code in the line makes a checkpoint.
def scripted(network: Any, path: Path) -> None:
    torch.jit.trace(network, torch.zeros(1, 3, 16, 16)).save(path)


def exported(network: Any, path: Path) -> None:
    torch.export.save(torch.export.export(network, (torch.zeros(1, 3, 16, 16),)), path)


def arrays(network: Any, path: Path) -> None:
    with path.open("wb") as file:
        numpy.savez(
            file, **{key: value.numpy() for key, value in network.state_dict().items()}
        )


CODE: dict[str, tuple[Callable[[Any, Path], None], str]] = {
    "TorchScript": (scripted, "a TorchScript archive"),
    "export": (exported, "an exported program"),
    "NumPy": (arrays, "arrays of NumPy"),
}


@pytest.mark.filterwarnings("ignore")  # PyTorch's, of what it will no longer trace
@pytest.mark.parametrize("form", CODE)
def test_the_code_in_a_line_makes_a_checkpoint(
    form: str, network: Any, tmp_path: Path
) -> None:
    write, name = CODE[form]
    path, made = tmp_path / "w.pt2", tmp_path / "made.pth"
    write(network, path)
    line = line_of(path)
    assert line.startswith(f"got {name} | ")
    run(line.rpartition(" | ")[2], {"FILE": made})
    assert_same(made, network)


def in_jax(state: dict[str, Tensor], heads: int) -> dict[str, Any]:
    """The weights of a ViT as Big Vision writes them."""
    dim = state["cls_token"].shape[-1]
    block, attention = "Transformer/encoderblock_0", "MultiHeadDotProductAttention_1"
    arrays = {
        "cls": state["cls_token"],
        "embedding/kernel": state["patch_embed.proj.weight"].permute(2, 3, 1, 0),
        "embedding/bias": state["patch_embed.proj.bias"],
        "Transformer/posembed_input/pos_embedding": state["pos_embed"],
        f"{block}/{attention}/out/kernel": state["blocks.0.attn.proj.weight"].T.reshape(
            heads, -1, dim
        ),
        f"{block}/{attention}/out/bias": state["blocks.0.attn.proj.bias"],
        "head/kernel": state["head.weight"].T,
        "head/bias": state["head.bias"],
    }
    norms = {
        "Transformer/encoder_norm": "norm",
        f"{block}/LayerNorm_0": "blocks.0.norm1",
        f"{block}/LayerNorm_2": "blocks.0.norm2",
    }
    for there, here in norms.items():
        arrays |= {
            f"{there}/scale": state[f"{here}.weight"],
            f"{there}/bias": state[f"{here}.bias"],
        }
    for there, here in (("Dense_0", "fc1"), ("Dense_1", "fc2")):
        arrays[f"{block}/MlpBlock_3/{there}/kernel"] = state[
            f"blocks.0.mlp.{here}.weight"
        ].T
        arrays[f"{block}/MlpBlock_3/{there}/bias"] = state[f"blocks.0.mlp.{here}.bias"]
    for there, weight, bias in zip(
        ("query", "key", "value"),
        state["blocks.0.attn.qkv.weight"].chunk(3),
        state["blocks.0.attn.qkv.bias"].chunk(3),
        strict=True,
    ):
        arrays[f"{block}/{attention}/{there}/kernel"] = weight.T.reshape(dim, heads, -1)
        arrays[f"{block}/{attention}/{there}/bias"] = bias.reshape(heads, -1)
    return {name: value.numpy() for name, value in arrays.items()}


def test_timm_reads_the_weights_of_jax(network: Any, tmp_path: Path) -> None:
    path, made, model = tmp_path / "B_16.npz", tmp_path / "made.pth", small()
    numpy.savez(path, **in_jax(network.state_dict(), 3))
    line = line_of(path)
    assert line.startswith("got the weights of a ViT in JAX | ")
    run(line.replace("timm.create_model(NAME)", "model"), {"model": model})
    torch.save(model.state_dict(), made)
    assert_same(made, network)


def shards(network: Any, folder: Path, suffix: str = "safetensors") -> list[Path]:
    state = network.state_dict()
    names = [f"model-0000{part}-of-00002.{suffix}" for part in (1, 2)]
    for part, name in enumerate(names):
        save_file({key: state[key] for key in [*state][part::2]}, folder / name)
    places = {key: names[place % 2] for place, key in enumerate(state)}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return [folder / names[0], index, folder]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_shards_are_joined(network: Any, tmp_path: Path, place: int) -> None:
    (tmp_path / "parts").mkdir()
    path, model, made = (
        shards(network, tmp_path / "parts")[place],
        small(),
        tmp_path / "made.pth",
    )
    run(line_of(path), {"model": model, "huggingface_hub": huggingface_hub})
    torch.save(model.state_dict(), made)
    assert_same(made, network)


def test_a_shard_that_is_alone_is_a_checkpoint(network: Any, tmp_path: Path) -> None:
    path = tmp_path / "model-00001-of-00001.safetensors"
    save_file(network.state_dict(), path)
    assert_same(path, network)


@pytest.mark.filterwarnings("ignore")  # PyTorch's, that no processes are joined
@pytest.mark.parametrize("name", ["", "__0_0.distcp", ".metadata"])
def test_a_checkpoint_of_torch_distributed_is_joined(
    network: Any, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, made = tmp_path / "parts", tmp_path / "made.pth"
    save_parts({"model": network.state_dict()}, checkpoint_id=folder)
    line = line_of(folder / name)
    command = line.rpartition("python -m ")[2].replace("FILE", str(made)).split()
    monkeypatch.setattr(sys, "argv", command)
    sys.modules.pop(command[0], None)
    runpy.run_module(command[0], run_name="__main__")
    assert_same(made, network)


@pytest.mark.parametrize("form", ["zip", "tar"])
def test_an_archive_is_unpacked(network: Any, tmp_path: Path, form: str) -> None:
    torch.save(network.state_dict(), tmp_path / "w.pth")
    path = tmp_path / "w.bin"
    if form == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.write(tmp_path / "w.pth", "w.pth")
    else:
        with tarfile.open(path, "w:gz") as packed:
            packed.add(tmp_path / "w.pth", "w.pth")
    assert line_of(path).endswith("unpack it, and give the checkpoint in it")
    shutil.unpack_archive(path, tmp_path / "out", "gztar" if form == "tar" else form)
    assert_same(tmp_path / "out/w.pth", network)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "pytorch_model.bin", "checkpoint-7.pth"]
)
def test_a_folder_names_the_file_in_it(network: Any, tmp_path: Path, name: str) -> None:
    """Accelerate writes the first, beside the state of the run."""
    for other in ("optimizer.bin", "random_states_0.pkl", "scheduler.bin"):
        (tmp_path / other).touch()
    save_file(network.state_dict(), tmp_path / "x.safetensors")
    (tmp_path / "x.safetensors").rename(tmp_path / name)
    line = line_of(tmp_path)
    assert line.endswith(f"give --checkpoint {tmp_path / name}")
    assert_same(tmp_path / name, network)


def test_weights_of_transformers_are_its_librarys_folder(tmp_path: Path) -> None:
    shape: dict[str, Any] = {
        "hidden_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 3,
    }
    model = ViTForImageClassification(
        ViTConfig(**shape, image_size=16, patch_size=8)
    ).eval()
    torch.save(model.state_dict(), tmp_path / "w.pth")
    line = line_of(tmp_path / "w.pth")
    assert line.endswith("model.save_pretrained(FOLDER), then --model FOLDER")
    folder = tmp_path / "folder"
    model.save_pretrained(folder)
    assert line_of(folder / "model.safetensors").endswith("--model FOLDER")
    line = line_of(folder)
    assert line.startswith("got the folder of a model | ")
    vit = load(ModelRequest(line.rpartition("--model ")[2]))
    images = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(vit.model(images), model(images).logits)


def test_weights_of_torchvision_have_its_name(tmp_path: Path) -> None:
    network = VisionTransformer(
        image_size=16,
        patch_size=16,
        hidden_dim=48,
        num_layers=1,
        num_heads=3,
        mlp_dim=96,
    )
    torch.save(network.state_dict(), tmp_path / "w.pth")
    name = line_of(tmp_path / "w.pth").rpartition(" ")[2]
    keys = describe(ModelRequest(name)).model.state_dict().keys()
    assert network.state_dict().keys() <= keys


def test_keys_of_mmpretrain_are_renamed(network: Any, tmp_path: Path) -> None:
    line = line_of(_mmpretrain(network, tmp_path))
    pairs = dict(re.findall(r"([\w.]+) to ([\w.]+)", line))
    state = torch.load(tmp_path / "w.pth")["state_dict"]
    renamed = {}
    for key, value in state.items():
        name = key.removeprefix("backbone.")
        for there, here in pairs.items():
            pattern = (
                re.escape(there).replace(r"\.N\.", r"\.(\d+)\.").replace("N", r"(\d+)")
            )
            name = re.sub(f"^{pattern}(?=\\.)", here.replace("N", r"\1"), name)
        renamed[name] = value
    torch.save(renamed, tmp_path / "made.pth")
    assert_same(tmp_path / "made.pth", network)


def _mmpretrain(network: Any, folder: Path) -> Path:
    """As MMPretrain names its ViT: `mmpretrain/models/backbones/vision_transformer.py`."""
    names = {
        "patch_embed.proj.": "patch_embed.projection.",
        "blocks.0.norm1": "layers.0.ln1",
        "blocks.0.norm2": "layers.0.ln2",
        "blocks.0.attn": "layers.0.attn",
        "blocks.0.mlp.fc1": "layers.0.ffn.layers.0.0",
        "blocks.0.mlp.fc2": "layers.0.ffn.layers.1",
        "norm.": "ln1.",
    }
    state = {}
    for key, value in network.state_dict().items():
        name = (
            key.replace("head.", "head.layers.head.")
            if key.startswith("head")
            else f"backbone.{key}"
        )
        for here, there in names.items():
            if name.startswith(f"backbone.{here}"):
                name = name.replace(here, there, 1)
                break
        state[name] = value
    torch.save({"meta": {"epoch": 1}, "state_dict": state}, folder / "w.pth")
    return folder / "w.pth"


PRE_TRAINED: dict[str, tuple[str, ...]] = {
    "decoder_embed.weight mask_token decoder_blocks.0.norm1.weight": (
        "decoder",
        "mask_token",
    ),
    "head.mlp.0.weight head.last_layer.weight_g": ("head",),
}


@pytest.mark.parametrize("keys", PRE_TRAINED)
def test_a_pre_training_is_a_backbone_without_its_other_parts(
    network: Any, tmp_path: Path, keys: str
) -> None:
    """MAE's decoder, and the head of DINO."""
    state = {
        key: value
        for key, value in network.state_dict().items()
        if not key.startswith("head")
    }
    path, beginnings = tmp_path / "w.pth", PRE_TRAINED[keys]
    torch.save(
        {"model": {**state, **{key: torch.zeros(2) for key in keys.split()}}}, path
    )
    line = line_of(path)
    assert all(
        f"keys of {name}" in line or f" and {name}" in line for name in beginnings
    )
    assert line.endswith("give --model-kwargs num_classes=0")
    torch.save(state, path)
    assert loaded(path, num_classes=0).spec.outputs[0].name == "embedding"


# What no code of ours makes a checkpoint of: bytes, keys or names, and the line.
BYTES: dict[str, tuple[bytes, str]] = {
    "c.pth": (
        b"root:x:0:0:root:/root:/bin/sh\n",
        "a file that is broken, or no checkpoint",
    ),
    "c.safetensors": (bytes(range(256)), "a file that is broken, or no checkpoint"),
    "half.pth": (b"PK\3\4" + bytes(99), "a file that is broken, or no checkpoint"),
    "empty.pth": (b"", "an empty file"),
    "pointer.safetensors": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
        "a pointer of Git LFS",
    ),
    "w.gguf": (b"GGUF\3\0\0\0" + bytes(99), "a GGUF file"),
    "tf_model.h5": (b"\x89HDF\r\n\x1a\n" + bytes(99), "a file of Keras or TensorFlow"),
    "model.ckpt.index": (bytes(99), "a file of TensorFlow"),
    "flax_model.msgpack": (b"\x81\xa4" + bytes(99), "a file of Flax or JAX"),
    "m.onnx": (bytes(99), "an ONNX model"),
    "m.bin": (b"\x08\x0a\x12\x07pytorch" + bytes(99), "an ONNX model"),
    "m.tflite": (b"\x1c\0\0\0TFL3" + bytes(99), "a model for another runtime"),
    "m.engine": (bytes(99), "a model for another runtime"),
    "w.zst": (b"\x28\xb5\x2f\xfd" + bytes(99), "an archive"),
    "w.pkl": (
        pickle.dumps({"w": numpy.zeros(2)}),
        "a pickle that torch.save did not write",
    ),
    "trainer_state.json": (b'{"epoch": 1}', "a text"),
}
FOLDERS = {
    "zero_to_fp32.py latest": "a folder of DeepSpeed",
    "saved_model.pb variables": "a file of TensorFlow",
    "_CHECKPOINT_METADATA d": "a file of Flax or JAX",
    "README.md": "a folder without weights",
}
KEYS = {
    "head.weight_scale": "a scale of weights of 8 bits",
    "blocks.0.mlp.fc1.weight.absmax": "of quantized weights",
    "layers.0.blocks.0.attn.relative_position_bias_table": "of a Swin or BEiT",
}
PICKLED = {
    "transformers.training_args": "the arguments of a Trainer, without weights",
    "fastai.learner": "a pickled Learner of fastai",
    "deepspeed.runtime": "which only its own code can read .* zero_to_fp32",
}


@pytest.mark.parametrize("name", BYTES)
def test_the_bytes_and_the_name_of_a_file_tell_its_form(
    tmp_path: Path, name: str
) -> None:
    content, said = BYTES[name]
    (tmp_path / name).write_bytes(content)
    assert line_of(tmp_path / name).startswith(f"got {said}")


@pytest.mark.parametrize("names", FOLDERS)
def test_the_files_of_a_folder_tell_its_form(tmp_path: Path, names: str) -> None:
    for name in names.split():
        (tmp_path / name).touch()
    assert line_of(tmp_path).startswith(f"got {FOLDERS[names]} | ")


@pytest.mark.parametrize("key", KEYS)
def test_keys_beside_those_of_the_network_tell_its_form(
    network: Any, tmp_path: Path, key: str
) -> None:
    torch.save({**network.state_dict(), key: torch.ones(2)}, tmp_path / "w.pth")
    assert KEYS[key] in line_of(tmp_path / "w.pth")


@pytest.mark.parametrize("place", PICKLED)
def test_a_pickled_class_tells_its_form(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type("Kind", (), {"__module__": place})
    for module in (place.partition(".")[0], place):
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
    vars(sys.modules[place])["Kind"] = kind
    torch.save({"run": kind()}, tmp_path / "w.pth")
    assert re.search(PICKLED[place], line_of(tmp_path / "w.pth"))


def test_the_state_of_an_optimizer_is_none_of_a_model(
    network: Any, tmp_path: Path
) -> None:
    optimizer = torch.optim.Adam(network.parameters())
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    assert line_of(tmp_path / "optimizer.pt").startswith(
        "got param_groups, of an optimizer | "
    )
    beside = {
        "model_state_dict": network.state_dict(),
        "optimizer_state_dict": optimizer.state_dict(),
    }
    torch.save(beside, tmp_path / "tutorial.pt")
    assert_same(tmp_path / "tutorial.pt", network)


def test_no_path_and_no_name_in_a_folder_is_taken_for_a_pattern(tmp_path: Path) -> None:
    folder = tmp_path / "{path} (1) \\1 [a"
    folder.mkdir()
    (folder / "m.pth").touch()
    assert line_of(folder).endswith(f"--checkpoint {folder}/m.pth")
