"""How a KV pool of SGLang is presented to the vendor's attention operators.

The operators know 4-D caches ``(blocks, kv_heads, block_size, head_dim)`` and tables of block numbers.
SGLang's own pools are ``(slots, kv_heads, head_dim)``; viewed with a block size of one, a slot is a
block, whatever page size the allocator uses. A pool that already has the 4-D layout says so with an
integer attribute ``contract_block_size`` and is used as it is.
"""

from __future__ import annotations

from typing import Any

import torch

_FLOATS = (torch.bfloat16, torch.float16, torch.float32)


class KVLayout:
    """Contract views of one pool.

    Attributes:
        block_size: tokens per block.
        has_window_pool: sliding-window layers live in a pool of their own, with their own slots.
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self.block_size: int = getattr(pool, "contract_block_size", 1)
        self.has_window_pool = bool(getattr(pool, "swa_layer_nums", 0))

    def caches(self, layer_id: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of a layer, each ``(blocks, kv_heads, block_size, head_dim)``.

        Asks the pool every time: reading a buffer is where a pool waits for a transfer in flight.
        """
        k, v = self._pool.get_key_buffer(layer_id), self._pool.get_value_buffer(layer_id)
        return (k, v) if k.dim() == 4 else (k.unsqueeze(2), v.unsqueeze(2))

    def in_window_pool(self, layer_id: int) -> bool:
        """Whether the layer's slots are those of the sliding-window pool."""
        return self.has_window_pool and self._pool.layers_mapping[layer_id][1]

    def window_slots(self, slots: torch.Tensor) -> torch.Tensor:
        """Slots of the full pool as slots of the sliding-window pool, int32."""
        return self._pool.translate_loc_from_full_to_swa(slots.long()).to(torch.int32)


def pool_problems(pool: Any) -> list[str]:
    """Why ``pool`` cannot be presented to the operators; empty when it can."""
    name = type(pool).__name__
    parts = [getattr(pool, part) for part in ("full_kv_pool", "swa_kv_pool") if hasattr(pool, part)]
    if parts:
        return [problem for part in parts for problem in pool_problems(part)]
    problems = []
    if getattr(pool, "requires_physical_write_loc", False):
        problems.append(f"KV pool {name}: virtual slots; use the default KV pool")
    if getattr(pool, "is_quantized_kv_cache", False):
        problems.append(f"KV pool {name}: quantised keys and values; use --kv-cache-dtype auto")
    if pool.dtype not in _FLOATS:
        problems.append(f"KV pool {name}: dtype {pool.dtype}; use --kv-cache-dtype auto")
    if problems:
        return problems
    if not pool.layer_num:
        return []
    for buffer in (pool.get_key_buffer(pool.start_layer), pool.get_value_buffer(pool.start_layer)):
        expected = 4 if hasattr(pool, "contract_block_size") else 3
        if buffer.dim() != expected or not buffer.is_contiguous() or getattr(pool, "use_hnd", False):
            problems.append(
                f"KV pool {name}: layout {tuple(buffer.shape)} with strides {buffer.stride()}; "
                "use (slots, kv_heads, head_dim), or 4-D blocks and the attribute contract_block_size"
            )
            break
    return problems
