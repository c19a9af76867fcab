"""The pruned forward pass of a model of the library's: its parameters, and answers as its owner's loop reads them.

The pass is that of timm's network, which holds no weights of its own: each time they are made of the library's,
query, key and value joined. Gradients pass through that to the library's parameters.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from exporter.core.base.errors import ModelError
from exporter.core.base.tensor_names import EMBEDDING
from exporter.core.base.vocabulary import OutputKind
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.vit.protocol import PrunableViT
from exporter.models.huggingface.keys import timm_weights
from exporter.models.registry import adapt

# What the library's models take that a pruned one cannot give, or would have to resample.
REFUSED = (
    "attention_mask",
    "bool_masked_pos",
    "interpolate_pos_encoding",
    "output_attentions",
    "output_hidden_states",
)


class LibraryForward:
    """The forward pass of a model of the library's; `reference` is its network's in PyTorch."""

    def __init__(
        self, model: Any, name: str, prune: Callable[[PrunableViT], PrunedViT]
    ) -> None:
        vit = adapt(model, name)
        if vit.outputs[0].kind == OutputKind.TOKENS:
            got = f"a {type(model).__name__}, of which all tokens are read"
            raise ModelError(name, got, "a model with an embedding or a head")
        self.model, self.reference = model, prune(vit)
        height, width = vit.spec.preprocessing.input_size[1:]
        self._size = (height, width)
        own = dict(vit.model.named_parameters())
        self._names, weights = tuple(own), self._weights()
        if weights.keys() != own.keys():
            odd = ", ".join(sorted(weights.keys() ^ own.keys())[:3])
            got = f"weights that are not those of timm's network one by one: {odd}"
            raise ModelError(name, got, "a model of the library's own code")
        for place in self._names:
            module, _, attribute = place.rpartition(".")
            del vit.model.get_submodule(module)._parameters[attribute]
        self._fill(weights)

    def __call__(
        self, pixel_values: Tensor, labels: Tensor | None = None, **settings: Any
    ) -> Any:
        """Return the library's record of an output: `logits`, and `loss` where there are labels; or an embedding.

        Raises:
            ModelError: Attentions, hidden states, masks or another size of images are asked for.
        """
        for name in REFUSED:
            if settings.pop(name, None):
                raise ModelError(name, "a pruned model", "the model that was pruned")
        returns_record = settings.pop("return_dict", None) is not False
        network: Any = self.reference.vit.model
        if network.training != self.model.training:
            network.train(self.model.training)
        # The library's own property of that has changed its name.
        network.grad_checkpointing = any(
            getattr(part, "gradient_checkpointing", False)
            for part in self.model.modules()
        )
        self._fill(self._weights())
        answer = self._record(self.reference(pixel_values), labels, settings)
        return answer if returns_record else answer.to_tuple()

    def __getstate__(self) -> dict[str, Any]:
        # Tensors that are computed from others cannot be copied: the next pass makes them anew.
        self._fill(dict.fromkeys(self._names))
        return vars(self)

    def _weights(self) -> dict[str, Tensor]:
        return timm_weights(self.model, self._size, keep_gradients=True)

    def _fill(self, weights: Mapping[str, Tensor | None]) -> None:
        network = self.reference.vit.model
        for name in self._names:
            place, _, attribute = name.rpartition(".")
            vars(network.get_submodule(place))[attribute] = weights[name]

    def _record(
        self, values: Any, labels: Tensor | None, settings: Mapping[str, Any]
    ) -> Any:
        # The library is there: the model is one of its.
        from transformers import modeling_outputs as records  # noqa: PLC0415
        from transformers.models.clip import modeling_clip as clip  # noqa: PLC0415

        if self.reference.vit.outputs[0].name == EMBEDDING:
            if hasattr(self.model, "visual_projection"):
                return clip.CLIPVisionModelOutput(image_embeds=values)
            return records.BaseModelOutputWithPooling(pooler_output=values)
        loss = None
        if labels is not None:
            config = self.model.config
            loss = self.model.loss_function(labels, values, config, **settings)
        return records.ImageClassifierOutput(loss=loss, logits=values)
