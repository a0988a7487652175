"""Which CPU cores each rank of the software Kunlun computes on."""

from __future__ import annotations

import os
from typing import Any

BIND_VARIABLE = "SGLANG_CPU_OMP_THREADS_BIND"


def ranks_on_this_host(server_args: Any) -> int:
    """Number of scheduler processes SGLang starts on this host."""
    replicas = 1 if getattr(server_args, "enable_dp_attention", False) else server_args.dp_size
    return max(1, server_args.tp_size * server_args.pp_size // max(1, server_args.nnodes)) * replicas


def binding(ranks: int, cores: list[int]) -> str:
    """Value of ``SGLANG_CPU_OMP_THREADS_BIND``: one group of cores per rank, separated by ``|``.

    Cores are dealt out evenly in blocks of neighbours. With more ranks than cores they are shared
    in turn, which is slow but correct.
    """
    if ranks >= len(cores):
        return "|".join(str(cores[rank % len(cores)]) for rank in range(ranks))
    share, left = divmod(len(cores), ranks)
    groups, start = [], 0
    for rank in range(ranks):
        end = start + share + (rank < left)
        groups.append(",".join(str(core) for core in cores[start:end]))
        start = end
    return "|".join(groups)


def available_cores() -> list[int]:
    """Cores this process may run on."""
    return sorted(os.sched_getaffinity(0))
