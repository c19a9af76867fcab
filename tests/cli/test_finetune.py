"""`star-export finetune`: weights that every verb prunes as they were trained, and nothing else without a word."""

import re
from pathlib import Path

import pytest
import torch

from tests.commands import (
    BRIEF,
    Command,
    Outcome,
    Workplace,
    recipe_file,
    report_of,
    succeeded,
)
from tests.disk_cache import shared_folder
from tests.exhaustive import also
from tests.killed import killed
from tests.vits import make_images

QUICK = ("--preset", "short", "--epochs", "1", "--batch-size", "4", "--recipe", BRIEF)
STAR = ("--method", "star", "--rho", "0.6", "--max-images", "4")


@pytest.fixture(scope="session")
def trained(workplace: Workplace) -> Path:
    """Fine-tuned weights, pruned by STAR at rho 0.6."""
    from exporter.cli.main import main  # noqa: PLC0415

    def make(folder: Path) -> None:
        flags = (
            *workplace.model,
            *STAR,
            *QUICK,
            *images(workplace),
            "--out",
            folder / "w.safetensors",
        )
        assert main([str(each) for each in ("finetune", *flags)]) == 0

    return shared_folder("finetuned", make) / "w.safetensors"


def images(workplace: Workplace) -> tuple[object, ...]:
    return ("--images", workplace.images, "--eval-images", workplace.images)


def finetune(
    star_export: Command, workplace: Workplace, out: Path, *flags: object
) -> Outcome:
    return star_export(
        "finetune", *workplace.model, *images(workplace), *QUICK, *flags, "--out", out
    )


def test_the_result_is_in_the_json(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    done = succeeded(
        finetune(
            star_export, workplace, tmp_path / "w.safetensors", "--rho", "0.6", "--json"
        )
    )
    for name in ("dense", "before", "after"):
        assert done.json[name]["images"] == 12
    assert done.json["loss_after"]["images"] == 12
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w.safetensors"]


def test_the_table_says_it_in_words(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    merged = recipe_file(tmp_path, reduce="merge", training={"augment": "none"})
    out = tmp_path / "w.safetensors"
    done = succeeded(finetune(star_export, workplace, out, "--rho", "0.6", *merged))
    assert "matching, merge, rho 0.6: 12 images" in done.out
    assert "compile it with --checkpoint alone" in done.out


def test_a_training_that_makes_nothing_better_says_so_and_what_to_try(
    star_export: Command,
    workplace: Workplace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("exporter.jobs.finetune.finetune", lambda *_, **__: 0)
    done = finetune(star_export, workplace, tmp_path / "w.safetensors", "--rho", "0.6")
    assert done.code == 1, done.err
    last = done.out.splitlines()[-1]
    assert (
        "no epoch is better than the pruned model before training, whose weights these are"
        in last
    )
    assert last.endswith("try --lr 2e-05, or more than 12 images")
    assert "nothing to recover" in done.out and (tmp_path / "w.safetensors").exists()


@pytest.fixture(scope="module")
def whole(
    tmp_path_factory: pytest.TempPathFactory, workplace: Workplace
) -> tuple[Path, list[str]]:
    """The weights of a run with all that a run may keep, which was not killed, and its flags but `--out`."""
    from exporter.cli.main import main  # noqa: PLC0415

    torch.set_num_threads(1)  # whatever an earlier test left
    folder = tmp_path_factory.mktemp("whole")
    # Sums of a calibration are kept every 16 images.
    given = (
        "--images",
        make_images(folder / "images", each=9),
        "--eval-images",
        workplace.images,
    )
    pruned = ("--method", "star", "--scorer", "fused", "--rho", "0.6")
    varied = recipe_file(
        folder, training={"ema_decay": 0.9, "mixup": 0.8, "augment": "crop"}
    )
    trained = ("--preset", "short", "--epochs", "2", "--batch-size", "8", *varied)
    flags = [*map(str, (*workplace.model, *given, *pruned, *trained, "--quiet"))]
    assert main(["finetune", *flags, "--out", str(folder / "w.safetensors")]) == 0
    return folder / "w.safetensors", flags


@pytest.mark.parametrize(
    ("function", "times", "left"),
    [
        also("exporter.calibration.calibrate.save_sums", 1, {"w.calibration.partial"}),
        also(
            "exporter.training.finetune._Trainer._step",
            3,
            {"w.calibration.partial", "w.ckpt"},
        ),
        also("torch.save", 2, {"w.calibration.partial", "w.ckpt", ".w.ckpt"}),
        (
            "exporter.jobs.finetune.save_weights",
            1,
            {"w.calibration.partial", "w.ckpt", "w.safetensors"},
        ),
    ],
    ids=["calibration", "an epoch", "writing the checkpoint", "after the weights"],
)
def test_a_run_that_was_killed_ends_with_the_same_bytes(
    function: str,
    times: int,
    left: set[str],
    star_export: Command,
    whole: tuple[Path, list[str]],
    tmp_path: Path,
) -> None:
    """STAR with its own calibration, averaged weights and an augmentation, in a process of as many threads."""
    uninterrupted, flags = whole
    command = ["finetune", *flags, "--out", str(tmp_path / "w.safetensors")]
    killed(function, times, *command)
    assert {
        re.sub(r"\.[0-9a-f]{8}\.partial$", "", path.name) for path in tmp_path.iterdir()
    } == left
    if "w.ckpt" in left:
        kept = torch.load(tmp_path / "w.ckpt", weights_only=True)
        assert kept["epochs_done"] == (2 if "w.safetensors" in left else 1)
        assert kept["ema"] is not None
    torch.set_num_threads(1)
    succeeded(star_export(*command))
    assert (tmp_path / "w.safetensors").read_bytes() == uninterrupted.read_bytes()
    # What was being written when the process ended stays, under a hidden name.
    finished = [
        path.name for path in tmp_path.iterdir() if not path.name.startswith(".")
    ]
    assert finished == ["w.safetensors"]


@pytest.mark.ort
def test_compile_needs_the_checkpoint_alone(
    star_export: Command, workplace: Workplace, trained: Path, tmp_path: Path
) -> None:
    alone, beside = tmp_path / "alone", tmp_path / "beside"
    compiled = ("compile", "--checkpoint", trained)
    done = succeeded(
        star_export(*compiled, "--out", alone, "--rounds", "5", "--batch", "2")
    )
    noise = "measured on noise, not on photos"
    assert f"no images: agreement with PyTorch and speed are {noise}" in done.err
    images = ("--images", workplace.images, "--rounds", "0")
    shown = succeeded(star_export(*compiled, *images, "--json", "--out", beside))
    assert "noise" not in shown.err
    planned = star_export("plan", "--checkpoint", trained, "--json").json
    report, other = (report_of(out) for out in (alone, beside))
    schedule = report["schedule"]
    assert [schedule[name] for name in ("method", "reduce", "rho", "keep")] == [
        "star",
        "drop",
        0.6,
        planned["keep"],
    ]
    assert all(model["passed"] for model in report["parity"].values())
    assert (report["measured_on"], other["measured_on"]) == ("noise", "images")
    quality = report["quality"]
    for name in ("accuracy", "pair", "agreement"):
        assert quality[name] is None
    assert report["searched"] is None
    assert report["speed"]["batches"]
    for name in report["files"].values():
        assert (alone / name).read_bytes() == (beside / name).read_bytes(), name
    pages = [(out / "report.html").read_text() for out in (alone, beside)]
    assert [noise in text for text in (done.out, *pages)] == [True, True, False]
    assert ["<figure" in page for page in pages] == [False, True]
    tuned = report["tuned"]
    assert tuned == other["tuned"] and tuned["loss"]["images"] == 12
    assert tuned["place"].endswith(f"/{workplace.images.name}")
    words = f"before fine-tuning ({tuned['accuracy']['dense']['top1']:.2%} top-1)"
    for text in (*pages, " ".join(done.out.split())):
        assert words in text
    assert "points of top-1 against the fine-tuned weights, unpruned" in pages[1]
    assert not (alone / "calibration.safetensors").exists()
    assert star_export("check", alone).code == 0


@pytest.mark.parametrize(
    ("verb", "flags", "message"),
    [
        (
            "compile",
            ("--recipe", "{folder}/again.toml", "--rho", "0.5"),
            "--images | got nothing",
        ),
        ("compile", ("--target", "openvino-int8"), "for the activation ranges of INT8"),
        (
            "compile",
            ("--class-map", "{folder}/map.json"),
            "--class-map | got no images | need --images",
        ),
        ("export", ("--target", "openvino-int8"), "for the activation ranges of INT8"),
    ],
)
def test_what_only_images_can_tell_is_refused_before_any_work(
    star_export: Command,
    trained: Path,
    tmp_path: Path,
    verb: str,
    flags: tuple[str, ...],
    message: str,
) -> None:
    (tmp_path / "map.json").write_text('{"class0": 0, "class1": 1}')
    (tmp_path / "again.toml").write_text("[model]\nrecalibrate = true")
    given = [flag.format(folder=tmp_path) for flag in flags]
    refused = star_export(
        verb, "--checkpoint", trained, *given, "--quiet", "--out", tmp_path / "out"
    )
    assert refused.code == 2
    assert message in refused.error
    assert {path.name for path in tmp_path.iterdir()} == {"again.toml", "map.json"}


@pytest.mark.ort
def test_what_is_exported_passes_its_check(
    star_export: Command, workplace: Workplace, trained: Path, tmp_path: Path
) -> None:
    source, model = ("--checkpoint", trained), tmp_path / "m.onnx"
    assert (
        star_export("export", *source, "--out", model, "--json").json["method"]
        == "star"
    )
    done = star_export(
        "check", *source, "--images", workplace.images, "--onnx", model, "--json"
    )
    assert (done.code, done.json["passed"]) == (0, True), done.err


def test_another_way_to_prune_needs_a_word(star_export: Command, trained: Path) -> None:
    refused = star_export("plan", "--checkpoint", trained, "--merges", "2")
    assert refused.code == 2
    assert "merges | got a setting beside" in refused.err
    assert "trained with star, rho 0.6 | need none" in refused.err
    assert (
        "recalibrate = true in the table [model] of a recipe allows it" in refused.err
    )


def test_with_the_word_it_is_done_and_warned_of(
    star_export: Command, trained: Path, tmp_path: Path
) -> None:
    told = star_export("inspect", trained, "--json").json
    assert (told["kind"], told["schedule"]["rho"]) == ("checkpoint", 0.6)
    assert told["has_calibration"] is True
    flags = (*recipe_file(tmp_path, recalibrate=True), "--rho", "0.9")
    done = succeeded(star_export("plan", "--checkpoint", trained, *flags, "--json"))
    assert done.json["rho"] == 0.9
    assert "is not pruned as it was trained, with star, rho 0.6" in done.err


def test_layers_chosen_by_training_without_pruning_are_not_pruned(
    star_export: Command, workplace: Workplace, trained: Path, tmp_path: Path
) -> None:
    out = tmp_path / "c.safetensors"
    flags = (
        "--images",
        workplace.images,
        "--epochs",
        "1",
        "--batch-size",
        "4",
        "--recipe",
        BRIEF,
    )
    counts = (
        "--activation-units",
        "1",
        "--last-weights",
        "--growth",
        "0",
        "--out",
        out,
    )
    words = ("depth", "choose", "--checkpoint", trained, *flags, *counts)
    refused = star_export(*words)
    assert refused.code == 2
    assert "--last-weights | got the last stage's beside" in refused.error
    assert list(tmp_path.iterdir()) == []
    done = succeeded(
        star_export(
            *words,
            *recipe_file(tmp_path, recalibrate=True, training={"augment": "none"}),
        )
    )
    assert "is not pruned as it was trained" in done.err
    told = star_export("inspect", out, "--json").json
    assert (told["schedule"], told["depth"]["merged"]) == (None, False)


def test_a_calibration_of_it_is_made_anew(
    star_export: Command, workplace: Workplace, trained: Path, tmp_path: Path
) -> None:
    out = tmp_path / "c.safetensors"
    flags = ("--images", workplace.images, "--max-images", "2", "--out", out)
    done = succeeded(
        star_export("calibrate", "--checkpoint", trained, *flags, "--json")
    )
    assert done.json["record"]["images"] == 2
    assert "WARNING" not in done.err
