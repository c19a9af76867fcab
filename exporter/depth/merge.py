"""Merge linear layers without an activation between them, exactly, with the norm before and the scale after them.

All products are computed in float64 and rounded once, to the dtype of the layers (BoundaryDPT, merging of FFNs).
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["Affine", "saves_macs", "without_affine"]


@dataclass(frozen=True)
class Affine:
    """The map x → weight · x + bias, in float64; the methods return new maps."""

    weight: Float[Tensor, "o i"]
    bias: Float[Tensor, " o"]

    @classmethod
    def of(cls, linear: nn.Linear) -> "Affine":
        """Return the map of a linear layer; a missing bias is zero."""
        weight = linear.weight.detach().double()
        bias = weight.new_zeros(len(weight)) if linear.bias is None else linear.bias.detach().double()
        return cls(weight, bias)

    def then(self, after: "Affine") -> "Affine":
        """Return after(self(x)): W = W2 · W1, b = W2 · b1 + b2."""
        return Affine(after.weight @ self.weight, after.weight @ self.bias + after.bias)

    def after_norm(self, norm: nn.LayerNorm) -> "Affine":
        """Return self(γ · x + β) for a norm's γ and β: W = W · diag(γ), b = W · β + b."""
        weight, bias = self.weight, self.bias
        if norm.bias is not None:
            bias = weight @ norm.bias.detach().double() + bias
        if norm.weight is not None:
            weight = weight * norm.weight.detach().double()
        return Affine(weight, bias)

    def scaled(self, factor: Tensor | float) -> "Affine":
        """Return factor · self(x), for one factor or one per output channel [o]."""
        if not isinstance(factor, Tensor):
            return Affine(self.weight * factor, self.bias * factor)
        factor = factor.detach().double()
        return Affine(self.weight * factor.unsqueeze(1), self.bias * factor)

    def linear(self, like: nn.Linear) -> nn.Linear:
        """Return the map as a frozen linear layer in eval mode, with the dtype and the device of `like`."""
        outputs, inputs = self.weight.shape
        made = nn.Linear(inputs, outputs, device="meta", dtype=like.weight.dtype)
        made.weight = nn.Parameter(self.weight.to(like.weight.dtype), requires_grad=False)
        made.bias = nn.Parameter(self.bias.to(like.weight.dtype), requires_grad=False)
        return made.eval()


def saves_macs(first: nn.Linear, second: nn.Linear) -> bool:
    """Return whether one merged layer takes no more MACs per token than both: o · i ≤ h · (i + o).

    For a dimension d on both sides: h ≥ d / 2. A narrower hidden layer is cheaper than the merged one.
    """
    inputs, hidden, outputs = first.in_features, first.out_features, second.out_features
    return outputs * inputs <= hidden * (inputs + outputs)


def without_affine(norm: nn.LayerNorm) -> nn.LayerNorm:
    """Return the norm without γ and β, to be folded into the next linear layer by `Affine.after_norm`."""
    device = None if norm.weight is None else norm.weight.device
    shape = list(norm.normalized_shape)
    return nn.LayerNorm(shape, eps=norm.eps, elementwise_affine=False, device=device).eval()
