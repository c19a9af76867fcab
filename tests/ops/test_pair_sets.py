"""The two sets of pairs: tokens alternate, whatever the number of prefix tokens."""

from hypothesis import given
from hypothesis import strategies as st

from exporter.ops.pair_sets import first_joined, num_joined


@given(patches=st.integers(0, 40), prefix=st.integers(0, 6))
def test_every_second_token_is_joined_by_others(patches: int, prefix: int) -> None:
    second = [token - prefix for token in range(prefix, prefix + patches) if token % 2]
    assert list(range(first_joined(prefix), patches, 2)) == second
    assert num_joined(patches, prefix) == len(second)


def test_behind_a_class_token_the_first_patch_is_joined() -> None:
    assert [first_joined(prefix) for prefix in range(4)] == [1, 0, 1, 0]
    assert [num_joined(patches, 1) for patches in (195, 196, 197)] == [98, 98, 99]
    assert [num_joined(patches, 2) for patches in (195, 196, 197)] == [97, 98, 98]
