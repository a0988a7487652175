"""Checks of the software Kunlun: cheap comparisons of attributes that fail with ``ContractError``.

Each helper costs well under a microsecond and never reads tensor data. Prefix-sum and length tables
are the exception the contract makes: their host copies exist to be read.
"""

from __future__ import annotations

from typing import NoReturn

import torch

from kunlun_backend.vendor.contract import CONTRACT, ContractError


def refuse(operator: str, argument: str, value: object, limit: str, remedy: str) -> NoReturn:
    """Raise ``ContractError`` for ``operator``, which is named in full."""
    raise ContractError(CONTRACT[operator].full_name, argument, value, limit, remedy)


def check_dtype(operator: str, argument: str, tensor: torch.Tensor, allowed: tuple[torch.dtype, ...]) -> None:
    """Require one of the ``allowed`` dtypes."""
    if tensor.dtype not in allowed:
        names = " or ".join(str(dtype) for dtype in allowed)
        refuse(operator, f"dtype of {argument}", tensor.dtype, names, "Convert it; the operator does not.")


def check_shape(operator: str, argument: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    """Require exactly ``shape``."""
    if tensor.shape != shape:
        refuse(operator, f"shape of {argument}", tuple(tensor.shape), str(tuple(shape)), "Reshape it first.")


def check_rank(operator: str, argument: str, tensor: torch.Tensor, rank: int) -> None:
    """Require ``rank`` dimensions."""
    if tensor.dim() != rank:
        refuse(operator, f"rank of {argument}", tensor.dim(), str(rank), "Reshape it first.")


def check_contiguous(operator: str, argument: str, tensor: torch.Tensor) -> None:
    """Require a contiguous tensor."""
    if not tensor.is_contiguous():
        refuse(
            operator,
            f"layout of {argument}",
            f"strides {tensor.stride()}",
            "contiguous",
            "Call .contiguous().",
        )


def check_rows(operator: str, argument: str, tensor: torch.Tensor) -> None:
    """Require the last two dimensions to be dense. Rows themselves may be strided, as slices of one
    projection are."""
    dense = tensor.stride(-1) == 1 and (tensor.size(-2) <= 1 or tensor.stride(-2) == tensor.size(-1))
    if not dense and tensor.numel():
        strides = f"strides {tensor.stride()}"
        refuse(operator, f"layout of {argument}", strides, "dense heads and head dimension", "Make it dense.")


def check_limit(operator: str, quantity: str, value: int, remedy: str) -> None:
    """Require ``value`` within the documented limit of ``quantity``."""
    maximum = CONTRACT[operator].limit(quantity)
    if value > maximum:
        refuse(operator, quantity, value, f"at most {maximum}", remedy)


def check_fixed(operator: str, argument: str, value: object) -> None:
    """Require the one documented value of an argument."""
    expected = CONTRACT[operator].fixed[argument]
    if value is not expected and value != expected:
        refuse(operator, argument, value, f"only {expected!r}", "Other values are not documented.")


def check_host_table(operator: str, argument: str, table: torch.Tensor, length: int) -> None:
    """Require an int32 vector of ``length`` on the host."""
    if table.device.type != "cpu" or table.dtype is not torch.int32 or table.shape != (length,):
        found = f"{table.dtype} {tuple(table.shape)} on {table.device}"
        refuse(operator, argument, found, f"torch.int32 ({length},) on the host", "Build it as documented.")
