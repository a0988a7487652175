"""Fingerprints, comparison, explanation and command of ``kunhook audit``, on modules made up for a test."""

from __future__ import annotations

import collections
import functools
import json
import os
import sys
import types

import msgspec
import pytest
from click.testing import CliRunner

from hookspecs import AttnBackend, EnvDefault, OpImpl, PluginInfo
from kunhook import discovery
from kunhook.audit import compare, explain, loaded, run, snapshot
from kunhook.audit.compare import Difference, Noise, differences
from kunhook.audit.fingerprint import Fingerprinter
from kunhook.cli import cli, options
from kunhook.errors import KunhookError

WORLD = """
import enum, functools, types

NUMBERS = (3, 4)
NAMES = ['b', 'a']
REGISTRY = {'a': 1, 'inner': {'x': [1]}}
ALLOWED = {'x', 'y'}
ALIAS = REGISTRY
METHODS = types.MappingProxyType({'a': 1})

def plain(x, y=1, *, z=2):
    return x + y

def outer(held):
    def inner():
        return held
    return inner

made = outer(1)
cached = functools.lru_cache(plain)
bound = functools.partial(plain, 1)
extend = NAMES.extend

class Color(enum.Enum):
    RED = 1

class Slotted:
    __slots__ = ('value', 'unset')
    def __init__(self):
        self.value = 1

class Base:
    table = {'k': plain}
    def method(self): return 1
    @staticmethod
    def static(): return 1
    @classmethod
    def of_class(cls): return 1
    @property
    def prop(self): return 1

class Child(Base):
    pass

color = Color.RED
slotted = Slotted()
instance = Base()
instance.state = {'n': 1}
"""


@pytest.fixture
def world(monkeypatch):
    """A module of a package that is compared."""
    module = types.ModuleType("made_up")
    monkeypatch.setitem(sys.modules, "made_up", module)
    exec(compile(WORLD, "/made_up.py", "exec"), vars(module))
    return module


def record():
    return json.loads(json.dumps(snapshot.record(("made_up",), dict(os.environ))))


def changed(world, deed):
    """Where two snapshots differ, with ``deed`` done in between."""
    before = record()
    exec(deed, {"world": world, "types": types, "functools": functools, "sys": sys})
    return {d.where: d for d in differences(before, record())}


DEEDS = {
    "constant": ("world.NUMBERS = (3, 5)", {"made_up.NUMBERS"}),
    "order of numbers": ("world.NUMBERS = (4, 3)", {"made_up.NUMBERS"}),
    "another kind of container": ("world.NUMBERS = [3, 4]", {"made_up.NUMBERS"}),
    "list item": ("world.NAMES.append('c')", {"made_up.NAMES"}),
    "set item": ("world.ALLOWED.add('z')", {"made_up.ALLOWED"}),
    "dict entry": ("world.REGISTRY['b'] = 2", {"made_up.REGISTRY[b]"}),
    "entry two levels down": ("world.REGISTRY['inner']['x'].append(2)", {"made_up.REGISTRY[inner][x]"}),
    "a copy in place of the shared registry": ("world.ALIAS = dict(world.ALIAS)", {"made_up.ALIAS", "made_up.REGISTRY"}),
    "attribute added": ("world.new = 1", {"made_up.new"}),
    "attribute removed": ("del world.plain", {"made_up.plain"}),
    "function wrapped": (
        "original = world.plain\n"
        "world.plain = functools.wraps(original)(lambda *args, original=original: original(*args))",
        {"made_up.plain"},
    ),
    "code": ("world.plain.__code__ = (lambda x, y=1, *, z=2: x).__code__", {"made_up.plain"}),
    "default": ("world.plain.__defaults__ = (7,)", {"made_up.plain[(defaults)]"}),
    "keyword default": ("world.plain.__kwdefaults__['z'] = 7", {"made_up.plain[(keyword defaults)][z]"}),
    "closure": ("world.made.__closure__[0].cell_contents = 2", {"made_up.made[(closure) held]"}),
    "attribute of a function": ("world.made.note = 1", {"made_up.made.note"}),
    "method": ("world.Base.method = lambda self: 2", {"made_up.Base.method"}),
    "inherited method": ("world.Child.method = world.Base.method", {"made_up.Child.method"}),
    "static method": ("world.Base.static = staticmethod(lambda: 2)", {"made_up.Base.static[(function)]"}),
    "class method": ("world.Base.of_class = classmethod(lambda cls: 2)", {"made_up.Base.of_class[(function)]"}),
    "property": ("world.Base.prop = property(lambda self: 2)", {"made_up.Base.prop[(get)]"}),
    "property by function": ("world.Base.prop = lambda self: 2", {"made_up.Base.prop"}),
    "entry of a class attribute": ("world.Base.table['new'] = 1", {"made_up.Base.table[new]"}),
    "bases": ("world.Child.__bases__ = (type('Other', (world.Base,), {}),)", {"made_up.Child.(bases)"}),
    "enum member": ("world.Color.RED._value_ = 2", {"made_up.Color.RED._value_"}),
    "instance attribute": ("world.instance.extra = 1", {"made_up.instance.extra"}),
    "entry in an instance": ("world.instance.state['m'] = 2", {"made_up.instance.state[m]"}),
    "slot": ("world.slotted.value = 2", {"made_up.slotted.value"}),
    "slot that was empty": ("world.slotted.unset = 2", {"made_up.slotted.unset"}),
    "fake module": ("sys.modules['made_up.fake'] = types.ModuleType('made_up.fake')", {"made_up.fake"}),
    "nothing": ("", set()),
    "looking at a cache": ("world.cached(1)", set()),
    "order of names": ("world.NAMES.sort()", set()),
}


@pytest.mark.parametrize(("deed", "where"), DEEDS.values(), ids=DEEDS)
def test_every_change_is_named_and_only_it(world, deed, where, monkeypatch):
    monkeypatch.delitem(sys.modules, "made_up.fake", raising=False)
    # An enum member is a fact of its class, told where the class is described.
    expected = {"made_up.Color.RED"} if where == {"made_up.Color.RED._value_"} else where
    found = changed(world, deed)
    sys.modules.pop("made_up.fake", None)
    if deed.startswith("world.Color"):
        assert set(found) <= expected
    else:
        assert set(found) == expected
