"""Every check of a parity result is said in plain words."""

from dataclasses import replace

import pytest

from exporter.evaluation.report.checks_table import checks_table
from tests.evaluation.parity.models import compared, pruned_family, with_outputs


def test_a_row_for_each_check() -> None:
    report = compared(pruned_family())
    rows = checks_table(report)
    assert [row.passed for row in rows] == [True] * len(report.checks)
    assert all(" " in row.words and "_" not in row.words for row in rows)
    assert len({row.words for row in rows}) == len(rows)


def test_a_check_that_fails_says_what_was_measured() -> None:
    family = pruned_family()
    with_outputs(family.shipped, lambda results: results["logits"].__iadd__(1.0))
    rows = [row for row in checks_table(compared(family)) if not row.passed]
    assert rows and all(row.limit.startswith("≤") for row in rows)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("embedding", "With the model's own decisions, embedding differ by rounding alone"),
        ("forced_embedding", "With PyTorch's decisions, embedding differ by rounding alone"),
        ("embedding_cosine", "embedding points the same way (lowest cosine)"),
        ("finite_tokens", "All values of tokens are finite"),
    ],
)
def test_outputs_are_named(name: str, words: str) -> None:
    report = compared(pruned_family())
    check = replace(report.checks[0], name=name, measured=None)
    (row,) = checks_table(replace(report, checks=(check,)))
    assert (row.words, row.measured) == (words, "nothing measured")
