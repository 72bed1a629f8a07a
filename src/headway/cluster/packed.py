"""Linear weights held as int8: half the bytes of bf16, widened where they are used."""

from __future__ import annotations

import torch
from torch import nn

_LARGEST = 127


class PackedLinear(nn.Module):
    """A linear layer whose weight is int8 with one fp32 scale an output row (absolute maximum over 127).

    The inputs are not quantised: the weight is widened to their type at each call.

    Attributes:
        weight: int8, ``(n_out, n_in)``.
        scale: float32, ``(n_out, 1)``.
        bias: Of the inputs' type, ``(n_out,)``, or None.
    """

    weight: torch.Tensor
    scale: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        """Pack a weight.

        Args:
            weight: ``(n_out, n_in)``, of any floating type.
            bias: ``(n_out,)``, kept as it is.
        """
        super().__init__()
        wide = weight.float()
        scale = wide.abs().amax(dim=1, keepdim=True) / _LARGEST
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))
        self.register_buffer("weight", torch.round(wide / scale).to(torch.int8))
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return ``inputs @ weight.T + bias``, ``(..., n_out)``."""
        weight = self.weight.to(inputs.dtype) * self.scale.to(inputs.dtype)
        return nn.functional.linear(inputs, weight, self.bias)
