"""Files and folders that are no checkpoint of one network: how each form is told, and what makes one of it."""

import re
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from exporter.core.base.errors import CheckpointError

A_CHECKPOINT = "a .safetensors file or a checkpoint of tensors"
SAVE = "save its weights alone: torch.save(model.state_dict(), FILE)"
ORIGIN = "give the PyTorch weights that it was made from"
UNPACK = "unpack it, and give the checkpoint in it"
ADAPTER = "an adapter of PEFT that is not merged"
JOIN = "join the shards first: zero_to_fp32.py of DeepSpeed, FULL_STATE_DICT of FSDP"
JOIN_SHARDS = (
    "join them: huggingface_hub.load_torch_model(model, '{folder}'), "
    "then torch.save(model.state_dict(), FILE)"
)
JOIN_PARTS = (
    "join it: python -m torch.distributed.checkpoint.format_utils dcp_to_torch {} FILE"
)
# Bytes at the beginning of a file that tell what it is.
BEGINNING = 64


class Form(NamedTuple):
    """A form of files: the pattern of a line of evidence that tells it, its name, and what to do.

    The name and what to do may have groups of the pattern; {path} is what was given, {folder} where its parts are.
    """

    sign: str
    name: str
    remedy: str


# The first that a line of evidence tells: what a file `begins` with, how it is `named`, what a folder `holds` or an
# archive `packs`, a class that a file `pickles`, a `key` of a checkpoint; where the weights do not fit a network,
# its `unfit` file, and the keys that are `unexpected`.
FORMS = (
    Form("^begins $", "an empty file", SAVE),
    Form(
        "^begins version https://git-lfs",
        "a pointer of Git LFS",
        "git lfs pull gets the file",
    ),
    Form("^begins GGUF", "a GGUF file, of llama.cpp", ORIGIN),
    Form("^begins \x89HDF|^packs .*[.]h5 ", "a file of Keras or TensorFlow", ORIGIN),
    Form(
        "^(named|holds) .*([.]ckpt[.](index|meta|data)|saved_model[.]pb)",
        "a file of TensorFlow",
        ORIGIN,
    ),
    Form(
        "^named .*[.]msgpack$|^holds .*(ocdbt|_CHECKPOINT_METADATA)",
        "a file of Flax or JAX",
        ORIGIN,
    ),
    Form("^(named .*[.]onnx$|begins \x08[\x01-\x20]\x12)", "an ONNX model", ORIGIN),
    Form(
        "^(named .*[.](engine|plan|xml|tflite|pte|mlmodel|mlpackage)$|begins .{4}(TFL3|ET1))",
        "a model for another runtime",
        ORIGIN,
    ),
    Form("^begins (\x1f\x8b|BZh|\xfd7zXZ|[(]\xb5\x2f\xfd)", "an archive", UNPACK),
    Form(
        "^packs .*/(archive_format|serialized_exported_program)",
        "an exported program",
        "torch.save(torch.export.load('{path}').state_dict, FILE)",
    ),
    Form(
        "^packs .*/constants[.]pkl ",
        "a TorchScript archive",
        "torch.save(torch.jit.load('{path}').state_dict(), FILE)",
    ),
    Form(
        "^packs .*encoderblock_0/.*[.]npy ",
        "the weights of a ViT in JAX",
        "timm reads them: timm.create_model(NAME).load_pretrained('{path}'), then save its state_dict()",
    ),
    Form(
        "^packs .*[.]npy ",
        "arrays of NumPy",
        "torch.save({key: torch.from_numpy(value) for key, value in numpy.load('{path}').items()}, FILE)",
    ),
    Form("^packs (?!.*/data[.]pkl )", "an archive", UNPACK),
    Form(
        "^(named|holds) .*[.]distcp ?$|^(named|holds) [.]metadata ?",
        "a checkpoint of torch.distributed",
        JOIN_PARTS.format("{folder}"),
    ),
    Form(
        r"^holds .*(zero_to_fp32[.]py|mp_rank_\d+_model_states)",
        "a folder of DeepSpeed",
        JOIN,
    ),
    Form("^holds (.* )?config[.]json ", "the folder of a model", "--model {path}"),
    Form(
        r"^(named|holds) .*[.](safetensors|bin)[.]index[.]json\b",
        "a list of shards",
        JOIN_SHARDS,
    ),
    Form(r"^unfit .*-\d{5}-of-(?!00001)\d{5}[.]", "one of several shards", JOIN_SHARDS),
    Form(
        r"^holds (?:.*? )??((?!optim|sched|training_args)[\w.-]{1,80}[.](?:safetensors|bin|pth|pt|ckpt)) ",
        "a folder",
        r"give --checkpoint {path}/\1",
    ),
    Form("^holds ", "a folder without weights", "give the file of the weights"),
    Form(
        "^named .*[.](json|ya?ml|toml|txt|csv|py)$", "a text", "give a file of weights"
    ),
    Form(
        "^pickles transformers[.]training_args",
        "the arguments of a Trainer, without weights",
        "give the model.safetensors beside it",
    ),
    Form(
        "^pickles fastai[.]",
        "a pickled Learner of fastai",
        "torch.save(learner.model.state_dict(), FILE)",
    ),
    Form(
        r"^pickles ((?:deepspeed|torch[.]distributed)[.].*)",
        r"a pickled \1, which only its own code can read",
        JOIN,
    ),
    Form("^pickles (.*)", r"a pickled \1, which only its own code can read", SAVE),
    Form(
        "^begins \x80(?!\x02\x8a\nl\xfc)",
        "a pickle that torch.save did not write",
        "torch.save its tensors by key",
    ),
    Form("^begins ", "a file that is broken, or no checkpoint", SAVE),
    Form(
        r"^key ((?:.*[.])?(?:(?:lora|ia3|hada|lokr|b?oft|vera)_\w+|base_layer|modules_to_save)(?:[.].*)?)$",
        rf"\1, of {ADAPTER}",
        "merge first: model.merge_and_unload(), then save its state_dict()",
    ),
    Form(r"^key ((?:.*[.])?_?flat_param.*)", r"\1, of a shard of FSDP", JOIN),
    Form(
        "^key ((?:.*[.])?(?:fp32_flat_groups|zero_stage|single_partition_of_fp32_groups)(?:[.].*)?)$",
        r"\1, of a shard of DeepSpeed's ZeRO",
        JOIN,
    ),
    Form(
        "^key (param_groups)$",
        r"\1, of an optimizer",
        "give the state_dict() of the model",
    ),
    Form(
        "^unexpected (.*((weight|input|output)_scale(_inv)?|scale_(weight|input)))$",
        r"\1, a scale of weights of 8 bits",
        "multiply by them, then save again",
    ),
    Form(
        "^unexpected (.*(absmax|quant_state.*|[.]SCB|_packed_params.*|zero_point))$",
        r"\1, of quantized weights",
        "give those from before quantization",
    ),
    Form(
        "^unexpected (.*relative_position_bias_table)$",
        r"\1, of a Swin or BEiT",
        "these have no adapter: docs/models.md",
    ),
    Form(
        "^unexpected ((?:.*[.])?embeddings[.].*)",
        r"\1, a key of Hugging Face's library",
        "model.save_pretrained(FOLDER), then --model FOLDER",
    ),
    Form(
        "^unexpected ((?:.*[.])?encoder[.]layers[.]encoder_layer_0[.].*)",
        r"\1, a key of torchvision",
        "give --model torchvision/NAME, e.g. torchvision/vit_b_16",
    ),
    Form(
        "^unexpected ((?:.*[.])?layers[.]0[.]ffn[.].*)",
        r"\1, a key of MMPretrain",
        "rename the keys as timm's: layers.N.ln1 to blocks.N.norm1, layers.N.ln2 to blocks.N.norm2, "
        "layers.N.attn to blocks.N.attn, layers.N.ffn.layers.0.0 to blocks.N.mlp.fc1, layers.N.ffn.layers.1 to "
        "blocks.N.mlp.fc2, patch_embed.projection to patch_embed.proj, ln1 to norm, head.layers.head to head",
    ),
    Form(
        "^unexpected ((?:.*[.])?decoder_(?:embed|blocks)[.].*)",
        r"\1, of a pre-training with a decoder",
        "drop the keys of decoder and mask_token, and give --model-kwargs num_classes=0",
    ),
    Form(
        r"^unexpected ((?:.*[.])?head[.](?:mlp[.]\d|last_layer)[.].*)",
        r"\1, of a pre-training's head",
        "drop the keys of head, and give --model-kwargs num_classes=0",
    ),
)


def refusal(
    path: Path | str,
    evidence: Iterable[str],
    got: str = "",
    expected: str = A_CHECKPOINT,
) -> CheckpointError | None:
    """Return the error of the first form that a line of evidence tells; `got` is said after its name."""
    lines, place = [*evidence], Path(path)
    folder = place if place.is_dir() else place.parent
    for form in FORMS:
        for line in lines:
            if match := re.search(form.sign, line, re.DOTALL):
                remedy = match.expand(form.remedy).replace("{folder}", str(folder))
                name = match.expand(form.name)
                name = f"{name}; {got}" if got else name
                return CheckpointError(
                    path, name, expected, remedy.replace("{path}", str(path))
                )
    return None


def evidence_of(path: Path) -> list[str]:
    """Return what tells the form of a file or folder that nothing can be read from."""
    if path.is_dir():
        return [f"holds {_listed(entry.name for entry in path.iterdir())}"]
    with path.open("rb") as file:
        begins = f"begins {file.read(BEGINNING).decode('latin-1')}"
    lines = [begins, f"named {path.name}"]
    try:
        with zipfile.ZipFile(path) as archive:
            lines.append(f"packs {_listed(archive.namelist())}")
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError):
        pass
    return lines


def _listed(names: Iterable[str]) -> str:
    return "".join(f"{name} " for name in sorted(names))
