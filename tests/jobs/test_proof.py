"""The checks of a compilation on two lowered models, without lowering them again."""

from pathlib import Path

import onnx
import pytest

from exporter.core import compiler
from exporter.core.base.artefact import Artefact, read_pair
from exporter.core.base.records import Pair
from exporter.core.base.targets import ONNXRUNTIME, ONNXRUNTIME_FP16, TENSORRT, Target
from exporter.core.base.vocabulary import InputKind
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.data.batches import first_images
from exporter.data.images import ImageFolder, list_images
from exporter.jobs.network import Network
from exporter.jobs.proof import pictures_of, prove, references_of
from exporter.jobs.recipe import Lowering, Measuring, Recipe
from exporter.jobs.variant import Variant
from exporter.measure.accuracy import Accuracy, warn_of_guesses
from exporter.processes import Processes
from exporter.report.page import Picture, save_page
from exporter.report.record import Report
from exporter.report.trade_off import trade_off_of
from tests.core.lower.models import a_star, dense, lowered, star
from tests.vits import make_images

QUIET = Measuring(batch=2, rounds=0, threads=1)


def lowered_pair(
    folder: Path,
    pruned: PrunedViT,
    target: Target = ONNXRUNTIME,
    unpruned: PrunedViT | None = None,
) -> Pair[Artefact]:
    """Both models in a folder; each is one of `tests.core.lower.models`."""
    for name, model in (("dense", unpruned or dense()), ("pruned", pruned)):
        onnx.save(lowered(model, target), folder / f"{name}.onnx")
    return read_pair(Pair(folder / "dense.onnx", folder / "pruned.onnx"))


def proved(
    pruned: PrunedViT,
    pair: Pair[Artefact],
    found: ImageFolder,
    reference: PrunedViT | None = None,
    *,
    measuring: Measuring = QUIET,
    noise: bool = False,
) -> Report:
    """The proof of a pair on the first images of a folder, which is evaluated too."""
    unpruned, variant = variants_of(reference or dense(), pruned, pair, measuring)
    pixels = first_images(found.files, pruned.vit.spec.preprocessing, "float32", 3)
    references = [*references_of(unpruned, [variant], pixels)]
    (proof,) = prove(unpruned, [variant], references, None if noise else found)
    return proof


def variants_of(
    unpruned: PrunedViT,
    pruned: PrunedViT,
    pair: Pair[Artefact],
    measuring: Measuring,
) -> tuple[Variant, Variant]:
    """The dense and the pruned variant of a network, whose links are already made."""
    network = Network(Recipe(measure=measuring), model=pruned.vit)
    variants = []
    for model, file in ((unpruned, pair.dense), (pruned, pair.pruned)):
        variant = Variant(network, None, Lowering(file.target.name))
        links = {"schedule": model.schedule, "_refitted": (model, None), "file": file}
        vars(variant).update(links)
        variants.append(variant)
    return variants[0], variants[1]


@pytest.mark.parametrize(
    ("hits", "images", "classes", "is_told"),
    [
        (15, 200, 10, True),
        (28, 200, 10, True),  # 14 %, whose 95 % interval has 10 %
        (40, 200, 10, False),
        (3, 40, 10, False),  # too few images to tell
        (0, 1000, 1000, True),
        (10, 1000, 1000, False),
    ],
)
def test_a_model_that_is_no_better_than_guesses_is_named(
    hits: int,
    images: int,
    classes: int,
    is_told: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    accuracy = Accuracy.of(top1_hits=hits, top5_hits=hits, images=images)
    warn_of_guesses(accuracy, classes, Path("photos"))
    start = f"photos: the unpruned model is right on {100 * accuracy.top1:.2f} % of"
    assert len(caplog.messages) == is_told
    assert all(line.startswith(start) for line in caplog.messages)


def pictures(pair: Pair[Artefact], proof: Report, folder: ImageFolder) -> list[Picture]:
    _, variant = variants_of(dense(), star(), pair, QUIET)
    (drawn,) = pictures_of([proof], [variant], folder)
    return drawn


@pytest.mark.ort
@pytest.mark.parametrize("labelled", [True, False])
def test_what_labels_and_rounds_add(tmp_path: Path, labelled: bool) -> None:
    classes = star().vit.spec.num_classes
    images = make_images(tmp_path / "images", classes=classes, each=1)
    (images / "class_1" / "torn.png").write_text("no image")
    found = list_images(images, num_classes=classes if labelled else None)
    pair = lowered_pair(tmp_path, star())
    proof = proved(star(), pair, found)
    assert proof.passed
    assert proof.parity.pruned.layers and not proof.parity.dense.layers
    assert proof.quality.pair is not None and proof.quality.pair.images == 7
    assert proof.quality.pair.classes == ()
    assert (proof.quality.pair.loss_points is not None) == labelled
    assert (proof.quality.accuracy is not None) == labelled
    if proof.quality.accuracy is not None:
        assert (
            proof.quality.accuracy.dense.images
            == proof.quality.accuracy.pruned.images
            == 7
        )
    assert list(proof.quality.skipped) == ["class_1/torn.png"]
    names = {found.name_of(file.path) for file in found.files}
    assert {example.image for example in proof.examples} == names - {
        *proof.quality.skipped
    }
    assert all((example.label is not None) == labelled for example in proof.examples)
    assert (proof.speed.at, trade_off_of([proof]), proof.use) == (None, None, None)
    assert (
        proof.quality.fp32_losses is None and proof.quality.loss is proof.quality.pair
    )
    drawn = pictures(pair, proof, found)
    save_page(proof, pair.pruned, tmp_path / "report.html", pictures=drawn)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count('<div class="frames">') == len(proof.examples) == 7


@pytest.mark.ort
def test_an_image_without_a_class_and_other_processes_do_not_stop_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The main process of a launcher compiles alone."""
    monkeypatch.setattr("exporter.jobs.predicting.processes", lambda: Processes(0, 2))
    classes = star().vit.spec.num_classes
    images = make_images(tmp_path / "images", classes=classes, each=1)
    (images / "class_0" / "0.png").rename(images / "z.png")
    proof = proved(
        star(), lowered_pair(tmp_path, star()), list_images(images, num_classes=classes)
    )
    assert proof.quality.accuracy is None and proof.quality.pair is not None
    assert (
        proof.quality.pair.images == classes and proof.quality.pair.loss_points is None
    )


@pytest.mark.ort
def test_the_first_images_that_can_be_read_are_shown_without_examples(
    tmp_path: Path,
) -> None:
    found = list_images(make_images(tmp_path / "images", classes=2, each=3))
    for file in found.files[:2]:
        file.path.write_text("no image")
    pair = lowered_pair(tmp_path, star())
    proof = proved(star(), pair, found, noise=True)
    assert len(pictures(pair, proof, found)) == 4


@pytest.mark.ort
def test_a_star_says_what_it_left(tmp_path: Path) -> None:
    found = list_images(make_images(tmp_path / "images", classes=1))
    pruned = a_star()
    timed = Measuring(batch=2, more_batches=(3, 1, 2), rounds=5, threads=1)
    proof = proved(pruned, lowered_pair(tmp_path, pruned), found, measuring=timed)
    assert proof.passed
    assert proof.use is not None and proof.speed.at is not None
    assert (proof.use.images, proof.use.batch) == (3, 2)
    assert proof.speed.at.mac_ratio == pytest.approx(
        dense().macs.total / proof.use.useful_macs
    )
    assert len(proof.speed.at.throughput.pruned.rounds_ms) == 5
    assert [batch.batch for batch in proof.speed.batches] == [1, 2, 3]
    assert proof.speed.batches[1] is proof.speed.at
    assert proof.gmacs["pruned"] <= proof.use.most_macs / 1e9


@pytest.mark.ort
@pytest.mark.parametrize(
    ("target", "family", "runs"),
    [
        (ONNXRUNTIME, "vit", ONNXRUNTIME),
        (ONNXRUNTIME_FP16, "vit", ONNXRUNTIME),
        (ONNXRUNTIME_FP16, "pooled", ONNXRUNTIME),
        (ONNXRUNTIME, "pooled", None),
        (TENSORRT, "vit", TENSORRT),
    ],
)
def test_the_model_as_it_came_is_timed_beside_both_where_it_is_another(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: Target,
    family: str,
    runs: Target | None,
) -> None:
    """It computes all tokens to the end, in fp32, on the same runtime."""
    lowered_as = []

    def lower(model: PrunedViT, wanted: Target, kind: InputKind) -> onnx.ModelProto:
        lowered_as.append((model.vit.spec.read_tokens, wanted))
        return lowered(dense(family), wanted, kind)

    monkeypatch.setattr(compiler, "lower", lower)
    found = list_images(make_images(tmp_path / "images", classes=1))
    timed = Measuring(batch=2, more_batches=(1,), rounds=5, threads=1)
    pair = lowered_pair(tmp_path, star(family), target, dense(family))
    proof = proved(star(family), pair, found, measuring=timed, reference=dense(family))
    assert lowered_as == ([] if runs is None else [(0, runs)])
    assert [batch.as_it_came is not None for batch in proof.speed.batches] == [
        runs is not None
    ] * 2
    assert proof.speed.at is not None
    if proof.speed.at.as_it_came is not None:
        throughput = proof.speed.at.as_it_came.throughput
        assert (len(throughput.rounds_ms), throughput.batch) == (5, 2)


@pytest.mark.ort
def test_below_fp32_a_loss_is_against_the_model_as_it_came(tmp_path: Path) -> None:
    """Two files that are wrong alike lose nothing against each other."""
    spec = star().vit.spec
    found = list_images(
        make_images(tmp_path / "images", classes=spec.num_classes, each=1),
        num_classes=spec.num_classes,
    )
    pair = lowered_pair(tmp_path, star(), ONNXRUNTIME_FP16)
    for path in (pair.dense.path, pair.pruned.path):
        model = onnx.load(path)
        for part in model.graph.initializer:
            if "head." in part.name:
                part.CopyFrom(
                    onnx.numpy_helper.from_array(
                        -onnx.numpy_helper.to_array(part), part.name
                    )
                )
        onnx.save(model, path)
    proof = proved(
        star(), pair, found, measuring=Measuring(batch=2, rounds=5, threads=1)
    )
    came, losses = proof.quality.fp32_accuracy, proof.quality.fp32_losses
    assert came is not None and losses is not None and proof.quality.pair is not None
    assert proof.quality.pair.agreement > 0.5
    assert losses.dense.agreement == losses.pruned.agreement == 0
    assert (proof.quality.loss, proof.quality.loss and proof.quality.loss.first) == (
        losses.pruned,
        "fp32",
    )
    assert proof.quality.accuracy is not None
    assert proof.quality.precision_loss == pytest.approx(
        100 * (came.top1 - proof.quality.accuracy.dense.top1)
    )
    trade_off = trade_off_of([proof])
    assert trade_off is not None
    assert trade_off.unpruned_loss == proof.quality.precision_loss
    assert trade_off.points[0].loss_points == losses.pruned.loss_points
    drawn = pictures(pair, proof, found)
    save_page(proof, pair.pruned, tmp_path / "report.html", pictures=drawn)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "by the precision" in page and "top-1 of your model, fp32" in page
