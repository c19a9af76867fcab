"""Every setting has a reader: what a user sets and nothing reads would be taken in silence."""

from dataclasses import fields

import pytest

from exporter.core.base.settings import Settings, fields_of
from exporter.depth.predictor import Sample
from exporter.training.settings import Augmentation, FinetuneSettings
from tests.core.base.every import every_settings
from tests.core.base.readers import reads

READS = reads()
# Fields that are read by the names of another record's.
BY_NAME: dict[type[Settings], set[str]] = {
    FinetuneSettings: {field.name for field in fields(Augmentation)}
}
# A measurement, not what a user sets, is read item by item; a class without a public name is read as a table.
SET = [
    settings
    for settings in every_settings()
    if not issubclass(settings, Sample) and not settings.__name__.startswith("_")
]


def unread(settings: type[Settings]) -> set[str]:
    names = set(fields_of(settings)) - BY_NAME.get(settings, set())
    return {name for name in names if (settings.__name__, name) not in READS}


@pytest.mark.parametrize("settings", SET, ids=lambda kind: kind.__name__)
def test_every_setting_has_a_reader(settings: type[Settings]) -> None:
    assert unread(settings) == set()


def test_a_setting_of_another_record_by_the_same_name_is_no_reader() -> None:
    """`warmup` of `bench` is read, and a record of the recipe that had one would not be."""
    assert ("BenchSettings", "warmup") in READS
    assert ("Measuring", "warmup") not in READS
