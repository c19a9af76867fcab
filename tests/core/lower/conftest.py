"""Every family is lowered in each way; `make test` takes the first of them."""

import pytest

from tests.exhaustive import mark_further_families


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_further_families(
        [item for item in items if item.nodeid.startswith("tests/core/lower/")]
    )
