"""One line for every user error: subject, value found, value expected, hint."""

import pytest

from exporter.core.base import errors
from exporter.core.base.errors import (
    MissingDependencyError,
    RecipeError,
    UserError,
    reason_of,
)


def test_four_parts_in_their_order() -> None:
    error = RecipeError("rho", "2", "a value in (0, 1]", "say 0.7")
    assert str(error) == "rho | got 2 | need a value in (0, 1] | say 0.7"
    assert error.subject == "rho"
    assert error.got == "2"
    assert error.expected == "a value in (0, 1]"
    assert error.hint == "say 0.7"
    assert str(RecipeError("rho", "2", "less")) == "rho | got 2 | need less"


def test_what_to_install() -> None:
    error = MissingDependencyError("openvino", "openvino")
    assert str(error).endswith("pip install 'star-export[openvino]'")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("one\ntwo"), "one"),
        (ValueError("\n\n  behind empty lines  \n"), "behind empty lines"),
        (OSError(), "OSError"),
        (
            FileNotFoundError(2, "No such file or directory", "here"),
            "No such file or directory",
        ),
        (KeyError("files"), "no 'files'"),
        (RuntimeError("x" * 500), "x" * 160),
    ],
)
def test_the_reason_of_an_error_of_another_library(error: Exception, line: str) -> None:
    assert reason_of(error) == line


@pytest.mark.parametrize(
    "name", [name for name in vars(errors) if name.endswith("Error")]
)
def test_all_are_of_one_kind(name: str) -> None:
    assert issubclass(getattr(errors, name), UserError)
