"""How alike two patches are: the cosine of their keys, averaged over heads (ToMe, section 3)."""

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

__all__ = ["WIDEST_GAP", "directions"]

# Upper bound of the difference of two cosines: the gap of a token that joins its survivor in any case.
WIDEST_GAP = 2.0


def directions(key: Float[Tensor, "b h t c"], num_prefix_tokens: int) -> Float[Tensor, "b n c"]:
    """Return the mean over heads of each patch's key, divided by its length, in float32."""
    return F.normalize(key.float().mean(dim=1)[:, num_prefix_tokens:], dim=-1)
