import numpy as np
import pytest
import torch
from torch import Tensor, nn

from exporter.core.base.errors import ModelError
from exporter.core.verify.runner import TensorInfo
from exporter.core.verify.torch_runner import TorchRunner

INPUTS = (TensorInfo("images", ("batch", 3), "float32"),)
OUTPUTS = (TensorInfo("logits", ("batch", 2), "float32"),)


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2)
        self.inference = False
        self.threads = 0

    def forward(self, feed: dict[str, Tensor]) -> dict[str, Tensor]:
        self.inference = torch.is_inference_mode_enabled()
        self.threads = torch.get_num_threads()
        return {"logits": self.head(feed["images"])}


def test_it_runs_without_gradients_and_returns_numpy() -> None:
    module = Linear().eval()
    images = np.ones((4, 3), np.float32)
    with TorchRunner(module, INPUTS, OUTPUTS) as runner:
        logits = runner.run({"images": images})["logits"]
    assert module.inference
    np.testing.assert_array_equal(
        logits, module.head(torch.ones(4, 3)).detach().numpy()
    )


def test_read_only_and_reversed_arrays_are_taken() -> None:
    images = np.arange(6, dtype=np.float32).reshape(2, 3)
    frozen = images.copy()
    frozen.setflags(write=False)
    with TorchRunner(Linear().eval(), INPUTS, OUTPUTS) as runner:
        expected = runner.run({"images": images})["logits"]
        np.testing.assert_array_equal(
            runner.run({"images": frozen})["logits"], expected
        )
        np.testing.assert_array_equal(
            runner.run({"images": images[::-1]})["logits"], expected[::-1]
        )


def test_threads_are_set_for_the_run_alone() -> None:
    module, before = Linear().eval(), torch.get_num_threads()
    with TorchRunner(module, INPUTS, OUTPUTS, threads=before + 1) as runner:
        runner.run({"images": np.ones((1, 3), np.float32)})
    assert (module.threads, torch.get_num_threads()) == (before + 1, before)


def test_a_module_in_training_mode_is_refused() -> None:
    module = Linear().eval()
    module.head.train()
    with pytest.raises(ModelError, match="training mode"):
        TorchRunner(module, INPUTS, OUTPUTS)
