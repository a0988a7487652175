"""Digest of a plan: equal in two processes exactly when they would behave alike."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from hookspecs import SPEC_VERSION
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
            [hook, key, answer.plugin, answer.value]
            for hook, keys in sorted(plan.answers.items())
            for key, answer in sorted(keys.items())
        ],
        "calls": [
            [hook, [[call.plugin, name_of(call.function)] for call in calls]]
            for hook, calls in sorted(plan.calls.items())
        ],
    }
    encoded = msgspec.json.encode(content, enc_hook=_encode, order="sorted")
    return hashlib.sha256(encoded).hexdigest()[:16]


def _encode(value: Any) -> Any:
    return name_of(value)
