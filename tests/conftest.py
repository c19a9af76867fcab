"""Import what tests stand on, except in the process that only hands tests to others."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("dist", "no") == "no":
        config.pluginmanager.import_plugin("tests.fixtures")
