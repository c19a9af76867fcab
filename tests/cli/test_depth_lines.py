"""What the actions of `depth` print."""

from exporter.cli.depth_lines import collected_lines, fitted_lines, layers
from exporter.depth.plan import DepthPlan
from exporter.depth.predictor import Predictor
from exporter.workflows.depth.result import Collected
from exporter.workflows.depth.steps import Fitted


def test_layers_of_a_table() -> None:
    assert layers(DepthPlan((3, 1), ())) == ("1 3", "-")


def test_images_that_could_not_be_read() -> None:
    assert list(collected_lines(Collected((), {}, {}))) == []
    found = Collected((), {f"{at}.png": "torn" for at in range(7)}, {"a.png": "torn"})
    assert list(collected_lines(found)) == [
        "1 training images skipped: a.png",
        "7 evaluation images skipped: 0.png, 1.png, 2.png, 3.png, 4.png",
    ]


def test_each_coefficient_has_the_term_that_it_multiplies() -> None:
    """One sample is enough to tell the terms apart: 2 for a and 3 for t, which are the shares that stay."""
    coefficients = tuple(float(number) for number in range(1, 16))
    predictor = Predictor(4, coefficients)
    (_, *lines) = fitted_lines(Fitted(predictor, {}))
    assert len(lines) == 15
    total = 0.0
    for line in lines:
        coefficient, a, t = line.split(" · ")
        total += float(coefficient) * 2 ** int(a.removeprefix("a^")) * 3 ** int(t.removeprefix("t^"))
    assert total == predictor.accuracy(-1.0, -2.0)
