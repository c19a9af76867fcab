"""Every accepted name, built with 4 blocks and 16 patches: the structure is the name's own, and width is not."""

import pytest

from tests.benchmarks.scripts import script
from tests.models.test_catalogue import ACCEPTED, needs

small_networks = script("small_networks.py")

# A fourth of its blocks is of another kind: they cannot be fewer.
DEPTHS = {"vit_base_patch16_sapiens2": 12}


@pytest.mark.parametrize("name", sorted(ACCEPTED))
@pytest.mark.filterwarnings("ignore:Mapping deprecated model name")
def test_rates_of_1_give_the_networks_own_answers(name: str) -> None:
    needs(name)
    vit = small_networks.small(name)
    assert (vit.spec.depth, vit.spec.num_patches) == (DEPTHS.get(name, 4), 16)
    assert small_networks.identical(vit, small_networks.random_images(vit, 2))
