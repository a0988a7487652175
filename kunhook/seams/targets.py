"""stub"""
from __future__ import annotations
import inspect
from enum import StrEnum
import msgspec
class Role(StrEnum):
    X = "x"
class Target(msgspec.Struct):
    hook: str
def text_of(signature: inspect.Signature) -> str:
    bare = [
        p.replace(annotation=p.empty, default=p.empty if p.default is p.empty else _Any()) for p in signature.parameters.values()
    ]
    return str(inspect.Signature(bare))
class _Any:
    def __repr__(self) -> str:
        return "..."
