"""Counts and sets."""

from fractions import Fraction
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from exporter.core.schedule.counts import joined_patches, keep_count


@given(st.integers(1, 100), st.integers(1, 1000))
def test_a_share_in_hundredths_is_rounded_up_exactly(
    hundredths: int, patches: int
) -> None:
    expected = max(1, ceil(Fraction(hundredths * patches, 100)))
    assert keep_count(hundredths / 100, patches) == expected


@given(st.floats(2.0**-20, 1.0, width=32), st.integers(1, 5000))
def test_never_none_and_never_more_than_there_are(rate: float, patches: int) -> None:
    assert 1 <= keep_count(rate, patches) <= patches
    assert keep_count(1.0, patches) == patches


@given(patches=st.integers(1, 40), prefix=st.integers(0, 6), data=st.data())
def test_the_least_distance_that_leaves_room(
    patches: int, prefix: int, data: st.DataObject
) -> None:
    keep = data.draw(st.integers(1, patches))
    second = joined_patches(patches, keep, prefix)
    assert len(second) <= keep and (second or patches == 1)
    step = second.step
    assert list(second) == [
        patch for patch in range(patches) if (prefix + patch) % step == step - 1
    ]
    for closer in range(2, step):
        assert (
            sum((prefix + patch) % closer == closer - 1 for patch in range(patches))
            > keep
        )
