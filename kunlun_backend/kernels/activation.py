"""SiLU-and-multiply with the vendor's operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

ActivationForward = Callable[[Any, torch.Tensor], torch.Tensor]


def make_vendor(ops: Any) -> ActivationForward:
    """The forward of SGLang's ``SiluAndMul`` on ``swiglu``."""
    swiglu = ops.swiglu

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        """silu of the first half of ``x`` [..., 2n] times the second half, as [..., n]."""
        shape = x.shape
        x = x.contiguous()
        if x.dim() != 2:
            x = x.view(-1, shape[-1])
        y = x.new_empty((x.size(0), shape[-1] // 2))
        if x.size(0):
            swiglu(x=x, y=y)
        return y if len(shape) == 2 else y.view(*shape[:-1], -1)

    return forward


def make_reference(ops: Any = None) -> ActivationForward:
    """The same in plain torch, in float32 until the result."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        """silu of the first half of ``x`` [..., 2n] times the second half, as [..., n]."""
        gate, up = x.float().chunk(2, -1)
        return (functional.silu(gate) * up).to(x.dtype)

    return forward
