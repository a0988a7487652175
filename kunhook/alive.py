"""Objects of this process that came out of the plan, for tracing.

SGLang freezes its heap, so nothing can be found through the garbage collector afterwards. What matters
is remembered, weakly, when it passes by: models as they are loaded, attention backends and their model
runners as they are made.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

_POOLS = ("token_to_kv_pool", "token_to_kv_pool_allocator", "req_to_token_pool")


class Alive:
    """Weak references to what SGLang made of the plan's answers."""

    def __init__(self) -> None:
        self._models: list[weakref.ref[Any]] = []
        self._backends: list[weakref.ref[Any]] = []
        self._runners: list[weakref.ref[Any]] = []

    def model(self, model: Any) -> None:
        """A model was loaded."""
        self._models.append(weakref.ref(model))

    def backend(self, backend: Any, runner: Any) -> None:
        """An attention backend was made for a model runner."""
        self._backends.append(weakref.ref(backend))
        self._runners.append(weakref.ref(runner))

    def operators(self, classes: list[type]) -> Iterator[Any]:
        """Modules of loaded models that are exactly of one of ``classes``."""
        for model in _living(self._models):
            for module in model.modules():
                if type(module) in classes:
                    yield module

    def instances(self, cls: type) -> Iterator[Any]:
        """Attention backends and memory pools that are exactly of ``cls``."""
        seen: set[int] = set()
        pools = (getattr(runner, name, None) for runner in _living(self._runners) for name in _POOLS)
        for found in (*_living(self._backends), *pools):
            if type(found) is cls and id(found) not in seen:
                seen.add(id(found))
                yield found


def _living(references: list[weakref.ref[Any]]) -> list[Any]:
    return [found for reference in references if (found := reference()) is not None]
