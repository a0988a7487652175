"""RMSNorm with the vendor's operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

NormForward = Callable[..., "torch.Tensor | tuple[torch.Tensor, torch.Tensor]"]

_DECISION = "_kunlun_norm_is_plain"


def make_vendor(ops: Any) -> NormForward:
    """The forward of SGLang's ``RMSNorm`` on ``rmsnorm`` and ``add_rmsnorm``.

    Norms the operators cannot express (a variance over part of the row, a float32 residual, an output
    dtype of its own, a weight in another dtype than the activations) run the reference; which of the
    two an instance takes is decided at its first call.
    """
    rmsnorm, add_rmsnorm = ops.rmsnorm, ops.add_rmsnorm
    reference = make_reference(ops)

    def forward(
        self: Any,
        x: torch.Tensor,
        residual: torch.Tensor | None = None,
        post_residual_addition: torch.Tensor | None = None,
        quant_linear: Any = None,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Norm of ``x`` [..., hidden], or of ``x + residual``, which is then returned as well.

        ``residual`` is updated in place, as SGLang's CUDA forward does. ``quant_linear`` only tells a
        fused quantised kernel what follows; there is none here.
        """
        plain = self.__dict__.get(_DECISION)
        if plain is None:
            plain = self.__dict__[_DECISION] = _is_plain(self, x)
        if not plain or (residual is not None and residual.dtype != x.dtype):
            return reference(self, x, residual, post_residual_addition)
        shape = x.shape
        x = x.contiguous()
        if len(shape) != 2:
            x = x.view(-1, shape[-1])
        out = torch.empty_like(x)
        weight = self.weight if self.has_weight else None
        if residual is None:
            if x.size(0):
                rmsnorm(x, weight, out, self.variance_epsilon)
            return out if len(shape) == 2 else out.view(shape)
        if post_residual_addition is not None:
            residual = residual + post_residual_addition
        residual = residual.contiguous()
        rows = residual if len(shape) == 2 else residual.view(x.shape)
        if x.size(0):
            if weight is None:
                rmsnorm(rows.add_(x), None, out, self.variance_epsilon)
            else:
                add_rmsnorm(x, rows, weight, out, self.variance_epsilon, False, True, None, None, rows, None)
        return out if len(shape) == 2 else out.view(shape), residual

    return forward


def make_reference(ops: Any = None) -> NormForward:
    """The same in plain torch, with float32 sums and every option of the class."""

    def forward(
        self: Any,
        x: torch.Tensor,
        residual: torch.Tensor | None = None,
        post_residual_addition: torch.Tensor | None = None,
        quant_linear: Any = None,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Norm of ``x`` [..., hidden], or of ``x + residual``, which is then returned as well."""
        if x.size(-1) != self.hidden_size:
            raise ValueError(f"RMSNorm of size {self.hidden_size} got a last dimension of {x.size(-1)}")
        dtype = getattr(self, "override_orig_dtype", None) or x.dtype
        wide = x.float()
        if residual is not None:
            wide = wide + residual.float()
            if post_residual_addition is not None:
                wide = wide + post_residual_addition.float()
            residual = wide.clone() if getattr(self, "fp32_residual", False) else wide.to(dtype)
        measured = wide if self.variance_size_override is None else wide[..., : self.variance_size_override]
        if measured.size(-1) != (self.variance_size_override or self.hidden_size):
            raise ValueError(f"RMSNorm over {self.variance_size_override} of {x.size(-1)} columns")
        wide = wide * torch.rsqrt(measured.square().mean(-1, keepdim=True) + self.variance_epsilon)
        cast_first = getattr(self, "cast_x_before_out_mul", False)
        normed = self.weight * wide.to(dtype) if cast_first else (wide * self.weight).to(dtype)
        return normed if residual is None else (normed, residual)

    return forward


def _is_plain(norm: Any, x: torch.Tensor) -> bool:
    """Whether the vendor's operators compute exactly this norm."""
    if norm.hidden_size != x.size(-1):
        raise ValueError(f"RMSNorm of size {norm.hidden_size} got a last dimension of {x.size(-1)}")
    return (
        norm.variance_size_override is None
        and not getattr(norm, "fp32_residual", False)
        and getattr(norm, "override_orig_dtype", None) in (None, x.dtype)
        and (not norm.has_weight or norm.weight.dtype == x.dtype)
    )
