"""What this process runs: the frozen plan and the objects its references resolved to.

Resolved once and kept; code that serves requests never comes here.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from kunhook import refs
from kunhook.alive import Alive
from kunhook.errors import KunhookError
from kunhook.plan import Plan


class Bound:
    """A plan with its references resolved on first use."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.pid = os.getpid()
        self.operators: dict[str, Callable[..., Any]] = {}
        """Forwards handed to SGLang's fused operators, by operator."""
        self.used: Counter[str] = Counter()
        """How often SGLang asked for, or called, what a hook provides in this process."""
        self.alive = Alive()
        self._objects: dict[tuple[str, str], Any] = {}
        self._vendor_ops: Any = None

    def object(self, hook: str, key: str = "") -> Any:
        """The object behind an answer that is a reference; None when nobody answered."""
        if (hook, key) not in self._objects:
            value = self.plan.value(hook, key)
            self._objects[hook, key] = None if value is None else refs.resolve(value, wanted_by=self.source(hook, key))
        return self._objects[hook, key]

    def ask(self, hook: str, key: str = "") -> Any:
        """What SGLang is given when it asks for a class or function: counted."""
        self.used[hook] += 1
        return self.object(hook, key)

    def ask_value(self, hook: str, key: str = "") -> Any:
        """What SGLang is given when it asks for a plain answer: counted."""
        self.used[hook] += 1
        return self.plan.value(hook, key)

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """Ask without counting: for reading back."""
        before = self.used.copy()
        try:
            yield
        finally:
            self.used = before

    def source(self, hook: str, key: str = "") -> str:
        """Who answered, for messages."""
        answer = self.plan.answers[hook][key]
        label = f"{hook}[{key}]" if key else hook
        return f"plugin {answer.plugin!r}, hook {label}"

    def vendor_ops(self) -> Any:
        """The bound vendor operators; None when no plugin provides any.

        Raises:
            KunhookError: the library cannot be imported.
        """
        if self._vendor_ops is None and (record := self.plan.value("get_vendor_ops")) is not None:
            bind = refs.resolve(record.bind, wanted_by=self.source("get_vendor_ops"))
            self._vendor_ops = bind()
        return self._vendor_ops


_bound: Bound | None = None


def bind(plan: Plan) -> Bound:
    """Make ``plan`` the plan of this process. Once only; a second plan is refused."""
    global _bound
    if _bound is not None and _bound.plan.digest != plan.digest:
        raise KunhookError(
            f"this process already runs plan {_bound.plan.digest}; plan {plan.digest} cannot be added to it."
        )
    _bound = _bound or Bound(plan)
    return _bound


def current() -> Bound | None:
    """The plan this process runs, or None when the stack is inactive here."""
    return _bound


def vendor_ops() -> Any:
    """The vendor operators of the plan this process runs.

    Raises:
        KunhookError: no plan is active, or it has no vendor operators.
    """
    if _bound is None:
        raise KunhookError("no plan is active in this process; start it through SGLang.")
    ops = _bound.vendor_ops()
    if ops is None:
        raise KunhookError("no plugin answers get_vendor_ops; enable the plugin that provides the operators.")
    return ops
