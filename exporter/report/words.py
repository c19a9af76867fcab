"""What is said of results, in words: speeds, losses and agreement. Records hold the data alone.

Speed is always over the unpruned export: the same precision, batch size and runtime, in the same run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.core.base.intervals import Interval
from exporter.core.base.records import Preprocessing
from exporter.core.base.targets import target_named
from exporter.core.base.vocabulary import Precision
from exporter.measure.batch_sweep import AtBatch
from exporter.measure.benchmark import Ratio
from exporter.measure.likeness import Agreement, Deviation, Deviations
from exporter.measure.loss import Gain, PairResult, Tuned
from exporter.report.record import Report

# Numbers of a head that are listed, those that moved most; JSON has all.
MOST_LISTED = 5


def number(value: float, digits: int = 1) -> str:
    """Return a number with this many decimals, and a real minus sign."""
    return f"{value:,.{digits}f}".replace("-", "−")


def percent(share: float, digits: int = 2) -> str:
    """Return a share as a percentage."""
    return f"{number(100 * share, digits)} %"


def interval(limits: Interval, digits: int = 2, scale: float = 1.0) -> str:
    """Return the limits of an interval."""
    low, high = limits
    return f"{number(scale * low, digits)} to {number(scale * high, digits)}"


def megabytes(size: int) -> str:
    """Return bytes as megabytes."""
    return f"{size / 1e6:,.1f} MB"


def milliseconds(ms: float, digits: int = 2) -> str:
    """Return milliseconds with this many decimals; below one, with two digits that are not 0."""
    return f"{ms:,.{digits}f}" if ms >= 1 else f"{ms:.2g}"


def points(lost: float) -> str:
    """Return what top-1 changes by, in points: a loss of 0.29 is "−0.29", a gain "+0.29"."""
    change = f"{-lost:+.2f}"
    return "0.00" if float(change) == 0 else change.replace("-", "−")


def points_interval(lost: Interval) -> str:
    """Return the limits of a change, of those of a loss in points: "−0.63 to +0.05"."""
    low, high = lost
    return f"{points(high)} to {points(low)}"


def loss(pair: PairResult) -> str:
    """Return the change with its interval, "−0.29 points (95 %: −0.63 to +0.05)"; "" without labels."""
    if pair.loss_points is None or pair.loss_interval_points is None:
        return ""
    limits = points_interval(pair.loss_interval_points)
    return f"{points(pair.loss_points)} points of top-1 (95 %: {limits})"


def tuned(record: Tuned) -> str:
    """Return what the points of a fine-tuning are against, and on which images."""
    return (
        f"against the unpruned model before fine-tuning ({record.accuracy.dense.top1:.2%} top-1), "
        f"as finetune recorded on {record.loss.images} images of {record.place}"
    )


def refit(gain: Gain) -> str:
    """Return a line of what a refit gained, and on which images."""
    outcome = "no gain is shown, the weights stay"
    if gain.shown:
        outcome = "nearer to the unpruned model"
    low, high = gain.interval
    after = gain.divergence - gain.gain
    return (
        f"{outcome}: on {gain.held_out} images, which are among those that the loss is printed for "
        f"({gain.read} others read), the divergence of its answers, 0 if they are equal, is "
        f"{gain.divergence:.4f} without and {after:.4f} with refit (a fall of {gain.gain:.4f}, "
        f"95 % {low:.4f} to {high:.4f})"
    )


def preprocessing(how: Preprocessing) -> str:
    """Return all of it in a line, as "224×224, bicubic, center crop 0.875, mean 0.5 0.5 0.5, std 0.5 0.5 0.5"."""
    _, height, width = how.input_size
    mean, std = (
        " ".join(f"{value:.4g}" for value in values) for values in (how.mean, how.std)
    )
    crop = f"{how.crop_mode} crop {how.crop_pct:.4g}"
    return f"{height}×{width}, {how.interpolation}, {crop}, mean {mean}, std {std}"


# How fast


def headline(batches: Sequence[AtBatch], batch: int = 0, place: str = "") -> str:
    """Return how fast pruning makes a model, over its unpruned export, at each batch size; "" without times.

    Where it is slower, that is said first; then the batch size that the settings name.

    Args:
        batches: The times at each batch size.
        batch: The batch size to name first.
        place: What ran both, where that must be said: " on …".
    """
    ordered = sorted(
        batches, key=lambda at: (at.speed_up.outcome != "slower", at.batch != batch)
    )
    if not ordered:
        return ""
    first, *others = ordered
    sayings = [f"{speed_up(first.speed_up)}{place} at batch {first.batch}"]
    sayings += [f"{_times(at.speed_up)} at batch {at.batch}" for at in others]
    return ", ".join(sayings)


def speed_up(measured: Ratio) -> str:
    """Return how fast pruning makes a model; where that is not shown to be faster, the words before the number."""
    base, times = "the unpruned export", _times(measured)
    if measured.outcome == "faster":
        return f"{times} as fast as {base}"
    if measured.outcome == "slower":
        return f"slower than {base}: {times}"
    return f"not shown to be faster than {base}: {times}"


def _times(measured: Ratio) -> str:
    """Return a speed-up as "1.36 ×"; with its quartiles where they lie on both sides of 1."""
    times = f"{measured.median:.2f} ×"
    if measured.outcome == "undecided":
        return f"{times} (quartiles {interval(measured.quartiles)})"
    return times


def speed(report: Report) -> str:
    """Return the headline of a report."""
    runtime = target_named(report.target).runtime
    place = f" on {timed_on(report)}" if runtime.stand_in is not None else ""
    return headline(report.speed.batches, report.speed.batch, place)


def timed_on(report: Report) -> str:
    """Return what ran the models whose times these are: a file for TensorRT has no engine yet."""
    runtime = target_named(report.target).runtime
    if runtime.stand_in is not None:
        return f"{runtime.stand_in.title}'s CPU, not {runtime.title}"
    return runtime.title


def export(report: Report) -> str:
    """Return what the unpruned export is called: by its precision, where that is not the model's."""
    precision = target_named(report.target).precision
    if precision == Precision.FP32:
        return "export"
    return f"{precision.replace('int', 'INT')} export"


def gain(report: Report) -> str:
    """Return the whole gain over the model as it came, in its factors; "" where that is the unpruned export."""
    at = report.speed.at
    if at is None or at.as_it_came is None:
        return ""
    return f"{at.as_it_came.whole:.2f} × your model as it came: {made_of(report)}"


def made_of(report: Report) -> str:
    """Return the factors of the gain over the model as it came, at the batch size of the settings."""
    at = report.speed.at
    assert at is not None and at.as_it_came is not None
    by_export = at.as_it_came.by_export.median
    return factors(by_export, at.speed_up.median, export(report))


def factors(by_export: float, by_pruning: float, exported: str) -> str:
    """Return what a gain is made of, as "2.58 by the INT8 export, 1.36 by pruning"."""
    return f"{by_export:.2f} by the {exported}, {by_pruning:.2f} by pruning"


# How well


def quality(report: Report) -> str:
    """Return what is lost, with its interval, and on how many images."""
    pair = report.quality.loss
    if pair is None:
        measured = report.quality.likeness
        if measured is None:
            return "accuracy was not measured"
        return f"{likeness(measured).sentence} on {measured.images:,} images"
    if pair.loss_points is None:
        return f"the same class on {pair.agreement:.1%} of {pair.images:,} images"
    return f"{loss(pair)} on {pair.images:,} images"


def sentence(text: str) -> str:
    """Return words as a sentence."""
    return f"{text[0].upper()}{text[1:]}."


def sentences(report: Report) -> str:
    """Return how fast pruning makes the model, the whole gain, and what that costs."""
    parts = [part for part in (speed(report), gain(report), quality(report)) if part]
    return " ".join(map(sentence, parts))


@dataclass(frozen=True)
class LikenessWords:
    """How an output without classes agrees with the dense model's.

    `title` and the shorter `column` say what `value` is, `sentence` has both; `rows` are more values, by what they
    are.
    """

    title: str
    column: str
    value: str
    sentence: str
    rows: dict[str, str]


def likeness(measured: Agreement | Deviations) -> LikenessWords:
    """Return how embeddings, labels or values agree, in words."""
    if isinstance(measured, Agreement):
        return _of_embeddings(measured)
    listed = measured.by_movement[:MOST_LISTED]
    rows = {deviation.name: _deviation(deviation) for deviation in listed}
    moved = [deviation.moved for deviation in measured.numbers]
    mean, most = sum(moved) / len(moved), max(moved)
    if measured.numbers[0].same_side is not None:
        value = f"{1 - mean:.2%} (lowest {1 - most:.2%})"
        sentence = f"the same labels on {value}"
        return LikenessWords("the same labels", "same labels", value, sentence, rows)
    title = "mean difference of the values, in their deviations"
    value = f"{mean:.2%} (largest {most:.2%})"
    if most == float("inf"):
        value = "unknown: the dense model's values do not vary"
    sentence = f"values that differ by {value} of their deviations"
    return LikenessWords(title, "difference", value, sentence, rows)


def _of_embeddings(measured: Agreement) -> LikenessWords:
    value = f"{measured.embedding_cosine:.4f} (lowest {measured.embedding_cosine_least:.4f})"
    sentence = f"embeddings at a cosine of {value}"
    rows, found = dict[str, str](), measured.retrieval
    if found is not None:
        rows = {
            "same nearest: pruned query in the dense index": f"{found.dense_index_at_1:.2%}",
            "same nearest: both re-indexed": f"{found.reindexed_at_1:.2%}",
            f"common among the nearest {found.nearest}, re-indexed": f"{found.reindexed_overlap:.2%}",
        }
    if found is not None and found.precision_at_1 is not None:
        dense, pruned = found.precision_at_1.dense, found.precision_at_1.pruned
        rows["nearest of the same class (precision@1)"] = f"{dense:.2%} → {pruned:.2%}"
    return LikenessWords("cosine of the embeddings", "cosine", value, sentence, rows)


def _deviation(deviation: Deviation) -> str:
    if deviation.same_side is not None and deviation.same_side_interval is not None:
        low, high = deviation.same_side_interval
        return f"{deviation.same_side:.2%} the same (95 % {low:.2%} to {high:.2%})"
    known = deviation.correlation
    correlation = "none" if known is None else f"{known:.4f}"
    return (
        f"{deviation.mean_difference:.4g} on average, at most {deviation.largest_difference:.4g} "
        f"(the value's deviation is {deviation.std:.4g}); correlation {correlation}"
    )
