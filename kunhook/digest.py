"""Digest of a plan: equal in two processes exactly when they would behave alike."""

from __future__ import annotations

import functools
import hashlib
import typing
from typing import TYPE_CHECKING, Any

import msgspec

from hookspecs import SPEC_VERSION
from hookspecs.records import Text
from kunhook.refs import name_of

if TYPE_CHECKING:
    from kunhook.plan import Plan


def digest_of(plan: Plan) -> str:
    """SHA-256 over everything in a plan that changes behaviour, as 16 hexadecimal digits.

    Left out on purpose: texts for people, file positions, process and host names.
    """
    active = {(row.plugin, row.distribution, row.version) for row in plan.rows if row.state.value == "active"}
    content = {
        "spec": SPEC_VERSION,
        "sglang": plan.sglang,
        "device": [plan.device.device, plan.device.variant] if plan.device else None,
        "plugins": sorted(active),
        "answers": [
            [hook, key, answer.plugin, _without_texts(answer.value)]
            for hook, keys in sorted(plan.answers.items())
            for key, answer in sorted(keys.items())
        ],
        "calls": [
            [hook, [[call.plugin, name_of(call.function)] for call in calls]]
            for hook, calls in sorted(plan.calls.items())
        ],
    }
    text = msgspec.json.encode(encoded(content), order="sorted")
    return hashlib.sha256(text).hexdigest()[:16]


def encoded(value: Any) -> Any:
    """Plain data for a value: records as mappings, classes and functions as the reference that names them."""
    return msgspec.to_builtins(value, enc_hook=name_of)


def _without_texts(value: Any) -> Any:
    if not isinstance(value, msgspec.Struct):
        return value
    return msgspec.structs.replace(value, **dict.fromkeys(_texts(type(value)), ""))


@functools.cache
def _texts(record: type[msgspec.Struct]) -> tuple[str, ...]:
    hints = typing.get_type_hints(record, include_extras=True)
    return tuple(name for name, hint in hints.items() if hint == Text)
