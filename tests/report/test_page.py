"""The page: its tables, charts and pictures."""

import base64
import re
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from exporter.core.base.intervals import wilson
from exporter.core.base.records import Pair
from exporter.core.base.tensor_names import IMAGES, count_name, keep_name
from exporter.core.schedule.macs import LayerUse, PatchUse
from exporter.core.verify.record import Check
from exporter.measure.likeness import Agreement, Retrieval
from exporter.measure.loss import Tuned
from exporter.report import words
from exporter.report.page import (
    GONE_COLOUR,
    GONE_SHARE,
    HEAT,
    HEAT_SHARE,
    LEAST_RELEVANCE,
    Picture,
    drawn,
    faded,
    heated,
    save_comparison,
    save_page,
)
from exporter.report.parity_words import check_words
from exporter.report.record import CalibratedOn, Report
from exporter.report.trade_off import trade_off_of
from tests.core.verify.models import compared, pruned_family
from tests.folders import artefacts
from tests.report.reports import full_report, judged, slower_report, small_report, timed

PIXELS = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), np.uint8)
# What two layers leave of 16 patches of two images.
PRUNED = {
    IMAGES: PIXELS,
    keep_name(2): np.array([[0, 1, 5], [2, 3, 4]]),
    keep_name(4): np.array([[1], [2]]),
}


def decoded(address: str) -> np.ndarray:
    return np.asarray(
        Image.open(BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGB")
    )


def test_survivors_keep_their_light() -> None:
    picture = faded(
        np.full((3, 8, 8), 200, dtype=np.uint8), np.array([0, 3]), grid=(2, 2)
    )
    gone = [int(GONE_SHARE * 200 + (1 - GONE_SHARE) * each) for each in GONE_COLOUR]
    expected = np.full((3, 2, 2), 200)
    expected[:, [0, 1], [1, 0]] = np.array(gone)[:, None]
    np.testing.assert_array_equal(picture, np.kron(expected, np.ones((4, 4), int)))


def test_frames_of_each_image_are_enlarged_and_say_what_is_left() -> None:
    pictures = drawn(PRUNED, (4, 4), np.arange(16))
    assert [
        [(frame.layer, frame.left) for frame in picture] for picture in pictures
    ] == [[(0, 16), (2, 3), (4, 1)]] * 2
    whole = decoded(pictures[0][0].address)
    assert whole.shape == (96, 96, 3)
    assert abs(whole[1::3, 1::3].astype(int) - PIXELS[0].transpose(1, 2, 0)).mean() < 40


def test_an_image_of_a_star_shows_its_own_count() -> None:
    pixels = np.zeros((2, 3, 8, 8), np.uint8)
    keep = {keep_name(1): np.array([[0, 1], [3, 0]]), count_name(1): np.array([2, 1])}
    assert [
        each[1].left for each in drawn({IMAGES: pixels, **keep}, (2, 2), np.arange(4))
    ] == [2, 1]


def test_relevance_is_coloured_by_its_logarithm_over_the_grey_image() -> None:
    pixels = np.stack([np.full((8, 8), each, np.uint8) for each in (60, 120, 180)])
    picture = heated(
        pixels,
        np.array([0.0, LEAST_RELEVANCE, LEAST_RELEVANCE**0.5, 1.0]) * 7,
        grid=(2, 2),
    )
    for place, stop in (
        ((0, 0), 0),
        ((0, 4), 0),
        ((4, 0), len(HEAT) // 2),
        ((4, 4), -1),
    ):
        expected = HEAT_SHARE * np.array(HEAT[stop]) + (1 - HEAT_SHARE) * 120
        np.testing.assert_allclose(
            picture[:, place[0] : place[0] + 4, place[1]].mean(axis=1), expected, atol=1
        )
    colours = heated(pixels, np.zeros(4), grid=(2, 2)).reshape(3, -1)
    assert np.unique(colours, axis=1).shape[1] == 1


def test_the_first_images_have_their_relevance_at_the_layers_that_are_shown() -> None:
    scores = np.random.default_rng(1).random((4, 16))
    first, second = drawn(PRUNED, (4, 4), np.arange(16), [scores])
    assert [bool(each.heat) for each in first] == [False, True, True]
    assert not any(each.heat for each in second)
    whole = decoded(first[2].heat)[1::3, 1::3].astype(int)
    assert (
        abs(whole - heated(PIXELS[0], scores[3], (4, 4)).transpose(1, 2, 0)).mean() < 20
    )
    again, _ = drawn(PRUNED, (4, 4), np.arange(16), [scores])
    assert again == first


def test_a_dense_model_has_no_pictures() -> None:
    assert drawn({IMAGES: PIXELS}, (4, 4), np.arange(16)) == []


def test_each_check_has_words_of_its_own() -> None:
    checks = compared(pruned_family()).checks
    said = {check_words(check, prunes=True) for check in checks}
    assert all(" " in text and "_" not in text for text in said)
    assert len(said) == len(checks)
    for name, text in (
        ("embedding", "With the model's own decisions, embedding differ by rounding"),
        ("forced_embedding", "With PyTorch's decisions, embedding differ by rounding"),
        ("embedding_cosine", "embedding points the same way (lowest cosine)"),
        ("finite_tokens", "All values of tokens are finite"),
    ):
        check = Check(name, None, "<=", 0.1, False)
        assert check_words(check, prunes=True).startswith(text)


def test_a_check_says_what_was_measured_and_the_limit_and_one_that_failed_is_marked(
    tmp_path: Path,
) -> None:
    report, failed = small_report(), Check("logits", 0.25, "<=", 0.1, False)
    for check, shown in (
        (failed, "<td>0.25</td><td>≤ 0.1</td>"),
        (replace(failed, measured=None), "<td>nothing"),
    ):
        parity = replace(report.parity.pruned, passed=False, checks=(check,))
        parities = Pair(report.parity.dense, parity)
        page = page_of(replace(report, parity=parities), tmp_path)
        assert shown in page
        assert page.count('<td class="mark no">✗</td>') == 1
        assert "✗ A file does not compute what PyTorch computes" in page


FRAMES = {
    IMAGES: np.zeros((2, 3, 8, 8), np.uint8),
    keep_name(1): np.array([[0, 1], [2, 3]]),
}


def page_of(
    report: Report, folder: Path, pictures: Sequence[Picture] | None = None
) -> str:
    if pictures is None:
        pictures = drawn(FRAMES, (2, 2), np.arange(4)) if report.examples else []
    save_page(report, artefacts().pruned, folder / "report.html", pictures=pictures)
    return (folder / "report.html").read_text(encoding="utf-8")


def comparison_of(
    folder: Path, pictures: Sequence[Picture] | None = None, **reports: Report
) -> str:
    """The page of several methods, by their names."""
    pictures = pictures or drawn(FRAMES, (2, 2), np.arange(4))
    results = {method: (report, pictures) for method, report in reports.items()}
    save_comparison(results, folder / "both.html", page="own.html")
    return (folder / "both.html").read_text(encoding="utf-8")


def test_it_says_what_the_report_says(tmp_path: Path) -> None:
    report = small_report()
    page = page_of(report, tmp_path)
    assert "&lt;vit&gt;" in page and "<vit>" not in page
    assert "the other patches: drop;" in page
    assert (
        page.count('<td class="mark yes">✓</td>')
        == len(report.parity.pruned.checks) * 2
    )
    assert "Both predict the same class" in page and "<pre>" not in page


def test_the_overlap_of_a_calibrations_halves_is_shown_where_there_is_one(
    tmp_path: Path,
) -> None:
    report = small_report()
    shares = tuple(0.6123 for _ in report.schedule.rates)
    pages = [
        page_of(each, tmp_path)
        for each in (report, replace(report, calibration=CalibratedOn(2, 0, shares)))
    ]
    assert [page.count("<td>0.61</td>") for page in pages] == [0, len(shares)]
    assert ["overlap of halves" in page for page in pages] == [False, True]


def test_images_that_could_not_be_read_are_counted_and_named(tmp_path: Path) -> None:
    torn = {f"<{at}>.png": "torn" for at in range(6)}
    report = replace(
        judged(small_report(), skipped=torn),
        calibration=CalibratedOn(2, 1, None, {"c.png": "torn"}),
    )
    page = page_of(report, tmp_path)
    assert (
        "6 images to measure on could not be read: &lt;0&gt;.png, &lt;1&gt;.png" in page
    )
    assert "&lt;4&gt;.png, …." in page and "&lt;5&gt;.png" not in page
    assert "1 skipped (c.png)" in page
    assert "could not be read" not in page_of(small_report(), tmp_path)


def test_it_needs_nothing_beside_it(tmp_path: Path) -> None:
    page = page_of(full_report(), tmp_path)
    assert page.count("data:image/png;base64,") == 2
    addresses = re.findall(r"""(?:src|srcset|href)=["']([^"']*)""", page)
    assert len(addresses) >= 6
    for address in addresses:
        assert address.startswith(("data:", "#"))


def test_accuracies_have_intervals_and_pictures_label_and_predictions(
    tmp_path: Path,
) -> None:
    report = full_report()
    page = page_of(report, tmp_path)
    assert report.quality.accuracy is not None
    for accuracy in (report.quality.accuracy.dense, report.quality.accuracy.pruned):
        for hits in (accuracy.top1_hits, accuracy.top5_hits):
            share, (low, high) = hits / 100, wilson(hits, accuracy.images)
            interval = f"<small>{100 * low:.2f} to {100 * high:.2f} %</small>"
            assert f"{100 * share:.2f} %{interval}" in page
    assert page.count('<figure class="lost">') == 1
    assert "label <b>cat</b>" in page and "a very long name of a class ✗" in page
    assert "cat/&lt;1&gt;.png" in page


def test_speeds_stand_beside_those_over_the_model_as_it_came(tmp_path: Path) -> None:
    full = full_report()
    plain = timed(
        full, *(replace(batch, as_it_came=None) for batch in full.speed.batches)
    )
    told = (
        "<b>1.83 ×</b>",
        "<span>your model as it came: 1.10 by the export, 1.67 by pruning</span>",
        "<td>1.83 ×<small>1.10 ×</small>",
        "<td>90.9<small>",
    )
    for report, shown in ((full, True), (plain, False)):
        page = page_of(report, tmp_path)
        assert [text in page for text in told] == [shown] * 4
        assert "1.67 ×<small>1.67 to 1.67, faster</small>" in page
        assert '<p class="lead">1.67 × as fast as the unpruned export at batch' in page
        both = comparison_of(tmp_path, star=report, tome=report)
        gain = "<td>1.67 ×<small>1.67 to 1.67</small></td>"
        assert both.count(gain) == 2 * len(report.speed.batches)
        assert both.count("<td>1.83 ×</td>") == shown * 2 * len(report.speed.batches)
        assert ("× your model, batch 8" in both) == shown


def test_several_methods_stand_side_by_side(tmp_path: Path) -> None:
    first = full_report()
    assert first.quality.pair is not None
    second = replace(
        judged(first, pair=replace(first.quality.pair, loss_points=7.25)),
        gmacs={**first.gmacs, "pruned": 2.5},
        examples=tuple(replace(example, pruned=1) for example in first.examples),
    )
    page = comparison_of(tmp_path, star=first, tome=second)
    for text in (
        "star/own.html",
        "tome/own.html",
        "<td>3.000<",
        "<td>2.500<",
        ">−7.25<small>",
        "✓ All files",
    ):
        assert text in page
    assert page.count("<figure") == len(first.examples) + len(["the chart"]) == 3
    assert (
        page.count("Patches left after layer 1") == 4
        and page.count('alt="The image"') == 2
    )
    parity = replace(first.parity.pruned, passed=False)
    failed = replace(second, parity=Pair(first.parity.dense, parity))
    page = comparison_of(tmp_path, star=first, tome=failed)
    assert "✗ A file does not" in page and page.count('<td class="no">✗') == 1


def test_macs_that_depend_on_the_image_are_the_mean_beside_the_most(
    tmp_path: Path,
) -> None:
    layers = (LayerUse(2, 1, 2.0, 3.0, 4, 5),)
    use = PatchUse(7, 2, "padded", layers, 3_000_000_000, 10, 3_456_000_000, 3.6e9)
    page = page_of(replace(small_report(), use=use), tmp_path)
    assert "mean (most)" in page and "3.000 (3.456)" in page and "3.456 at most" in page
    assert "mean (most)" not in page_of(small_report(), tmp_path)


def test_the_page_says_what_the_model_was_made_from(tmp_path: Path) -> None:
    report, artefact = small_report(), artefacts().pruned
    settings = {
        "checkpoint": Path("my<vit>.pth"),
        "rates": {2: 0.5},
        "more_batches": (1, 4),
    }
    save_page(report, artefact, tmp_path / "a.html", settings=settings)
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert '<td>checkpoint</td><td class="name">my&lt;vit&gt;.pth</td>' in page
    assert "{2: 0.5}</td>" in page
    assert '<td>more_batches</td><td class="name">1, 4</td>' in page
    assert (
        artefact.weights_sha256 in page
        and words.preprocessing(report.model.preprocessing) in page
    )
    assert words.preprocessing(report.model.preprocessing).endswith(
        "mean 0.5 0.5 0.5, std 0.5 0.5 0.5"
    )


def test_what_fine_tuning_recorded_stands_first(tmp_path: Path) -> None:
    report = replace(full_report(), examples=())
    assert report.quality.accuracy is not None and report.quality.pair is not None
    tuned = Tuned("cifar10/test", report.quality.accuracy, report.quality.pair)
    save_page(
        replace(report, tuned=replace(tuned, earlier=tuned)),
        artefacts().pruned,
        tmp_path / "a.html",
    )
    cards = re.findall(
        r'<div class="card(?: no)?"><b>(.*?)</b>\s*<span>(.*?)</span>',
        (tmp_path / "a.html").read_text(),
        re.S,
    )
    own = [text for _, text in cards if "points of top-1" in text]
    assert len(own) == 3 and own[0] == own[1] and own[0].endswith(words.tuned(tuned))
    assert "as finetune recorded on 100 images of cifar10/test" in own[0]
    assert own[2].startswith(
        "points of top-1 against the fine-tuned weights, unpruned (95 %: "
    )


def losing(low: float, points: float, high: float) -> Report:
    report = full_report()
    assert report.quality.pair is not None
    pair = replace(
        report.quality.pair, loss_points=points, loss_interval_points=(low, high)
    )
    return replace(judged(report, pair=pair), searched=None)


@pytest.mark.parametrize(
    ("points", "change", "is_worse"),
    [
        ((-2.2, -0.9, 0.3), "+0.90</b>", False),
        ((-2.2, 0.9, 3.3), "−0.90</b>", False),
        ((0.3, 0.9, 2.2), "−0.90</b>", True),
    ],
)
def test_a_change_has_one_interval_and_a_loss_is_marked(
    points: tuple[float, float, float], change: str, is_worse: bool, tmp_path: Path
) -> None:
    report = losing(*points)
    page = page_of(report, tmp_path)
    card = f'<div class="card{" no" if is_worse else ""}"><b>{change}'
    limits = words.points_interval((points[0], points[2]))
    assert card in page and f"points of top-1 (95 %: {limits}), 100 images" in page
    measured = trade_off_of([report])
    assert measured is not None and measured.points[0].loss_points == points[1]


def test_pictures_are_seen_before_any_table_and_the_rest_unfolds(
    tmp_path: Path,
) -> None:
    feed = {
        name: np.resize(array, (6, *array.shape[1:])) for name, array in FRAMES.items()
    }
    pictures = drawn(feed, (2, 2), np.arange(4))
    report = replace(full_report(), examples=full_report().examples * 3)
    own = page_of(report, tmp_path, pictures)
    both = comparison_of(tmp_path, pictures, star=report, tome=report)
    for page, at_once in ((own, 4), (both, 2)):
        seen, unfolds = page.index('class="pictures"'), page.index("<details>")
        assert seen < unfolds < page.index("<table")
        assert page[seen:unfolds].count("<figure") == at_once
        assert page[unfolds : page.index("</details>")].count("<figure") == 6 - at_once


def test_where_pruning_does_not_pay_the_pages_begin_with_it(tmp_path: Path) -> None:
    """Nothing about speed or the whole is green."""
    report = slower_report()
    own = page_of(report, tmp_path)
    both = comparison_of(tmp_path, star=report, tome=report)
    told = "slower than the unpruned export: 0.80 × at batch 8."
    assert f'<p class="lead no">S{told[1:]}</p>' in own
    assert both.count('<p class="method no"><b>') == both.count(f": {told}</p>") == 2
    for page in (own, both):
        assert '<td class="no">0.80 ×<small>' in page
        badges = re.findall(r'<div class="badge (\w+)">\s*(.*?)\s*</div>', page)
        assert [kind for kind, _ in badges] == ["measured"]
    assert "<span>your model as it came: 2.50 by the export, 0.80 by pruning" in own


@pytest.mark.parametrize("is_timed", [False, True])
def test_a_page_speaks_of_time_where_something_was_timed(
    is_timed: bool, tmp_path: Path
) -> None:
    report, command = losing(0.3, 0.9, 2.2), "star-export compile --rho 0.5"
    if is_timed:
        speed = report.speed.noted("2026-01-02 03:04 UTC", command)
        report = replace(report, speed=speed)
    else:
        report = timed(report)
    both = comparison_of(tmp_path, star=report, tome=report)
    for page in (page_of(report, tmp_path), both):
        own = re.sub(r"(?s)<style>.*?</style>", "", page)
        assert is_timed == ("images/s" in own) == ("× as fast" in own)
        for word in ("timed", "faster", "images per second", "batch 8"):
            assert is_timed or word not in own
    assert ("timed in turns" in both) == is_timed
    assert (command in page_of(report, tmp_path)) == is_timed


def test_the_worst_image_of_a_tower_stands_beside_the_mean(tmp_path: Path) -> None:
    retrieval = Retrieval(
        0.41, (0.34, 0.48), 0.255, (0.2, 0.32), 0.48, 10, Pair(0.335, 0.31)
    )
    agreement = Agreement(200, 0.9682, 0.2865, retrieval)
    report = judged(small_report(), agreement=agreement)
    page = page_of(report, tmp_path)
    for text in (
        "<b>0.9682 (lowest 0.2865)</b>",
        "<span>cosine of the embeddings, 200 images</span>",
        "same nearest: pruned query in the dense index</td><td></td><td>41.00%",
        "same nearest: both re-indexed</td><td></td><td>25.50%",
        "nearest 10, re-indexed</td><td></td><td>48.00%",
        "(precision@1)</td><td></td><td>33.50% → 31.00%",
        'class="card no"',
    ):
        assert text in page
    near = replace(agreement, embedding_cosine_least=0.95)
    assert 'class="card no"' not in page_of(judged(report, agreement=near), tmp_path)
