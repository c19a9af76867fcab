"""The worked example of a dense head: a pruned tower's grid on ONNX Runtime serves it, tokens alone do not."""

import pytest

from tests.benchmarks.scripts import script

segmentation = script("segmentation.py")


@pytest.mark.ort
def test_a_head_fitted_on_the_dense_tower_reads_the_pruned_ones() -> None:
    found = segmentation.compared({2: 0.7, 3: 0.5}, train=24, test=16)
    dense = found["dense"].accuracy
    assert dense > 0.8
    for way in ("drop", "merge"):
        pruned = found[way]
        assert pruned.gmacs < found["dense"].gmacs
        assert pruned.cosine > 0.99999
        assert pruned.accuracy > pruned.accuracy_zeros
    assert found["drop"].accuracy > dense - 0.1


def test_scenes_have_every_class_and_are_the_same_again() -> None:
    images, labels = segmentation.scenes(8, seed=3)
    assert images.shape == (8, 3, 64, 64) and labels.shape == (8, 64)
    assert set(labels.ravel().tolist()) == {0, 1, 2, 3}
    assert (segmentation.scenes(8, seed=3)[0] == images).all()
