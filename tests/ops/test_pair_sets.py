"""The two sets of pairs: tokens alternate, whatever the number of prefix tokens, or fewer are joined by others."""

from hypothesis import given
from hypothesis import strategies as st

from exporter.ops.pair_sets import joined_patches


@given(patches=st.integers(1, 40), prefix=st.integers(0, 6))
def test_every_second_token_is_joined_by_others(patches: int, prefix: int) -> None:
    second = [token - prefix for token in range(prefix, prefix + patches) if token % 2]
    assert list(joined_patches(patches, patches, prefix)) == second


@given(patches=st.integers(1, 40), prefix=st.integers(0, 6), data=st.data())
def test_the_least_distance_that_leaves_room(patches: int, prefix: int, data: st.DataObject) -> None:
    keep = data.draw(st.integers(1, patches))
    second = joined_patches(patches, keep, prefix)
    assert len(second) <= keep and (second or patches == 1)
    step = second.step
    assert list(second) == [patch for patch in range(patches) if (prefix + patch) % step == step - 1]
    for closer in range(2, step):
        assert sum((prefix + patch) % closer == closer - 1 for patch in range(patches)) > keep


def test_behind_a_class_token_the_first_patch_is_joined() -> None:
    assert [joined_patches(10, 10, prefix).start for prefix in range(4)] == [1, 0, 1, 0]
    assert [len(joined_patches(patches, 100, 1)) for patches in (195, 196, 197)] == [98, 98, 99]
    assert [len(joined_patches(patches, 100, 2)) for patches in (195, 196, 197)] == [97, 98, 98]


def test_fewer_survivors_than_every_second_patch() -> None:
    assert list(joined_patches(9, 4, 1)) == [1, 4, 7]
    assert list(joined_patches(9, 2, 1)) == [2, 6]
    assert list(joined_patches(9, 1, 1)) == [4]
