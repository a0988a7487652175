"""Rotary position embedding with the vendor's operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kunlun_backend.vendor.contract import CONTRACT

RotaryForward = Callable[..., "tuple[torch.Tensor, torch.Tensor]"]

_CHUNK = CONTRACT["flashinfer_rotary_embedding"].limit("tokens")


def make_vendor(ops: Any) -> RotaryForward:
    """The forward of SGLang's ``RotaryEmbedding`` on ``flashinfer_rotary_embedding``.

    The operator is called once per 256 tokens, its documented limit.
    """
    rotate = ops.flashinfer_rotary_embedding

    def forward(
        self: Any,
        positions: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        offsets: torch.Tensor | None = None,
        fused_set_kv_buffer_arg: Any = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotated ``query`` and ``key``, [tokens, heads * head_size] or [tokens, heads, head_size]."""
        if fused_set_kv_buffer_arg is not None:
            raise NotImplementedError("rotary_embedding: the vendor's operator has no fused KV write")
        positions = (positions if offsets is None else positions + offsets).flatten()
        tokens, head_size = positions.size(0), self.head_size
        if tokens == 0:
            return query, key
        q, k = query.view(tokens, -1, head_size), key.view(tokens, -1, head_size)
        table, rotary_dim, neox = self.cos_sin_cache, self.rotary_dim, self.is_neox_style
        if tokens <= _CHUNK:
            q, k = rotate(positions, rotary_dim, head_size, table, neox, q, k, None)
            return q.view(query.shape), k.view(key.shape)
        q_out, k_out = q.new_empty(q.shape), k.new_empty(k.shape)
        for start in range(0, tokens, _CHUNK):
            part = slice(start, start + _CHUNK)
            q_out[part], k_out[part] = rotate(
                positions[part], rotary_dim, head_size, table, neox, q[part], k[part], None
            )
        return q_out.view(query.shape), k_out.view(key.shape)

    return forward


def make_reference(ops: Any = None) -> RotaryForward:
    """The same in plain torch, in float32 until the result."""

    def forward(
        self: Any,
        positions: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        offsets: torch.Tensor | None = None,
        fused_set_kv_buffer_arg: Any = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotated ``query`` and ``key``, [tokens, heads * head_size] or [tokens, heads, head_size]."""
        if fused_set_kv_buffer_arg is not None:
            raise NotImplementedError("rotary_embedding: the reference has no fused KV write")
        positions = (positions if offsets is None else positions + offsets).flatten()
        cos, sin = self.cos_sin_cache.index_select(0, positions).float().unsqueeze(1).chunk(2, -1)

        def turn(x: torch.Tensor) -> torch.Tensor:
            heads = x.view(positions.size(0), -1, self.head_size)
            turned, kept = heads[..., : self.rotary_dim].float(), heads[..., self.rotary_dim :]
            if self.is_neox_style:
                first, second = turned.chunk(2, -1)
            else:
                first, second = turned[..., ::2], turned[..., 1::2]
            pair = (first * cos - second * sin, second * cos + first * sin)
            joined = torch.cat(pair, -1) if self.is_neox_style else torch.stack(pair, -1).flatten(-2)
            return torch.cat((joined.to(x.dtype), kept), -1).view(x.shape)

        if positions.size(0) == 0:
            return query, key
        return turn(query), turn(key)

    return forward
