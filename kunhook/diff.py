"""Compare two versions of SGLang at every name this project depends on. Sources are parsed, never imported."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import re
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import msgspec
from packaging.version import InvalidVersion, Version

from kunhook import versions
from kunhook.errors import UsageError, describe, nearest
from kunhook.seams import catalogue, signatures, targets
from kunhook.seams.targets import Role, Target

PACKAGE = "sglang"


class Change(StrEnum):
    """What happened to a name between two versions."""

    SAME = "same"
    MOVED = "moved"
    CHANGED = "changed"
    GONE = "gone"
    NEW = "new"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One name in both versions.

    Attributes:
        hook: the hook it serves; empty for a seam nobody catalogued yet.
        path: where kunhook looks for it.
        role: how kunhook uses it.
        change: what happened to it.
        old_signature: signature or kind in the old version, None where it does not exist.
        new_signature: the same in the new version, at the new place when it moved.
        moved_to: where it is defined now, if elsewhere than before. A name that is still found under
            its path, through a re-export or a base class, counts as unchanged.
        what_to_do: one sentence; empty when there is nothing to say.
        needs_work: whether kunhook does not yet follow the new version.
        retires_debt: whether it is a new seam for a hook that is a debt today.
    """

    hook: str
    path: str
    role: str
    change: Change
    old_signature: str | None
    new_signature: str | None
    moved_to: str | None
    what_to_do: str
    needs_work: bool
    retires_debt: bool = False


class Report(msgspec.Struct, frozen=True):
    """All findings for a pair of versions."""

    old: str
    new: str
    findings: tuple[Finding, ...]

    @property
    def needs_work(self) -> bool:
        """Whether any finding needs work."""
        return any(finding.needs_work for finding in self.findings)

    def summary(self) -> dict[str, int]:
        """Number of findings by change, and of those that matter most."""
        counts = {change.value: sum(f.change is change for f in self.findings) for change in Change}
        counts["needs_work"] = sum(f.needs_work for f in self.findings)
        counts["retires_debt"] = sum(f.retires_debt for f in self.findings)
        return counts


# -- where the sources are


class _Files(Protocol):
    def names(self) -> Iterable[str]: ...

    def read(self, name: str) -> bytes | None: ...


class _Folder:
    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self) -> Iterable[str]:
        for file in (self._root / PACKAGE).rglob("*.py"):
            yield file.relative_to(self._root).as_posix()

    def read(self, name: str) -> bytes | None:
        try:
            return (self._root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise UsageError(f"{self._root / name} cannot be read: {error.strerror}.") from error


class _Wheel:
    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            self._zip = zipfile.ZipFile(file)
        except zipfile.BadZipFile as error:
            raise UsageError(f"{file} is not a wheel: {error}. Give a .whl file or an unpacked folder.") from error
        except OSError as error:
            raise UsageError(f"{file} cannot be read: {error.strerror}.") from error
        self._names = frozenset(self._zip.namelist())

    def names(self) -> Iterable[str]:
        return (name for name in self._names if name.startswith(f"{PACKAGE}/") and name.endswith(".py"))

    def read(self, name: str) -> bytes | None:
        if name not in self._names:
            return None
        try:
            return self._zip.read(name)
        except (zipfile.BadZipFile, zlib.error, OSError, RuntimeError, NotImplementedError) as error:
            raise UsageError(f"{self._file}: {name} cannot be unpacked: {error}. Download the wheel again.") from error


def open_tree(given: str) -> Tree:
    """Find one version of SGLang.

    Args:
        given: version of the installed SGLang, a wheel, or a folder that holds ``sglang/``.

    Raises:
        UsageError: it is none of these, or cannot be read.
    """
    path = Path(given)
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except (OSError, ValueError) as error:
        raise UsageError(f"{given!r} cannot be read: {describe(error)}.") from error
    if is_folder:
        if not (path / PACKAGE).is_dir():
            raise UsageError(f"folder {given} holds no {PACKAGE}/.{_better_folder(path)}")
        return Tree(given, _Folder(path))
    if exists:
        tree = Tree(given, _Wheel(path))
        if next(iter(tree.files.names()), None) is None:
            raise UsageError(f"{given} holds no {PACKAGE}/: it is not a wheel of SGLang.")
        return tree
    try:
        wanted = Version(given)
    except InvalidVersion:
        raise UsageError(
            f"{given!r} is no file, no folder and no version. Give a wheel, a folder that holds {PACKAGE}/, "
            f"or the version of the installed SGLang."
        ) from None
    return Tree(given, _Folder(_installed_folder(wanted)))


def _better_folder(path: Path) -> str:
    if path.resolve().name == PACKAGE and (path / "srt").is_dir():
        return f" Give its parent, {path.resolve().parent}."
    if (path / "python" / PACKAGE).is_dir():
        return f" Give {path / 'python'}."
    return " Give the folder a wheel was unpacked into."


def _installed_folder(wanted: Version) -> Path:
    remedy = f"Download its wheel with: pip download --no-deps {PACKAGE}=={wanted}, and give the file instead."
    try:
        distribution = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        raise UsageError(f"SGLang {wanted} is not installed, and neither is any other. {remedy}") from None
    if Version(distribution.version) != wanted:
        raise UsageError(f"SGLang {wanted} is not installed, {distribution.version} is. {remedy}")
    folder = Path(str(distribution.locate_file("")))
    if not (folder / PACKAGE).is_dir():
        # An editable installation: its metadata and its sources are in different places.
        spec = importlib.util.find_spec(PACKAGE)
        for location in (spec.submodule_search_locations or ()) if spec else ():
            return Path(location).parent
        raise UsageError(f"SGLang {wanted} is installed without its sources. {remedy}")
    return folder


# -- what the sources define


class Found(msgspec.Struct, frozen=True):
    """A name that exists in a tree."""

    path: str
    """Where it is defined; another path than the one asked for when it was re-exported or inherited."""
    signature: str
    """Signature, or one of ``class``, ``property``, ``value``, ``module``."""


class _Alias(msgspec.Struct, frozen=True):
    """A name bound by an import."""

    module: str
    parts: tuple[str, ...]


_Binding = ast.AST | _Alias


_Names = dict[str, list[_Binding]]
"""What names are bound to; of several bindings, the one that normally holds comes first."""


class _Module(msgspec.Struct, frozen=True):
    name: str
    names: _Names
    stars: list[str]
    body: list[ast.stmt]


class _Spot(msgspec.Struct, frozen=True):
    """Where following a path ended."""

    module: _Module
    qualname: tuple[str, ...]
    node: ast.AST | None


class Tree:
    """The sources of one version of SGLang, parsed as they are asked for."""

    def __init__(self, given: str, files: _Files) -> None:
        self.given = given
        self.files = files
        self._modules: dict[str, _Module | None] = {}
        self._found: dict[str, Found | None] = {}
        self._classes: dict[ast.ClassDef, tuple[_Names, set[str]]] = {}
        self.version = self._read_version()

    @property
    def label(self) -> str:
        """The version; what the user gave when the sources do not tell."""
        return self.version or self.given

    def find(self, path: str) -> Found | None:
        """Follow ``package.module:Class.member`` through re-exports and base classes.

        Raises:
            UsageError: a file on the way cannot be parsed.
        """
        if path not in self._found:
            self._found[path] = self._find_call(path) if path.endswith("()") else self._find_name(path)
        return self._found[path]

    def _find_name(self, path: str) -> Found | None:
        spot = self._spot(path)
        return None if spot is None else self._describe(spot)

    def _find_call(self, path: str) -> Found | None:
        module, _, qualname = path[:-2].partition(":")
        holder, _, called = qualname.rpartition(".")
        spot = self._spot(f"{module}:{holder}")
        return Found(path, "call") if spot is not None and called in _called(spot) else None

    def _spot(self, path: str) -> _Spot | None:
        module, _, qualname = path.partition(":")
        return self._locate(module, tuple(filter(None, qualname.split("."))), set())

    def has_module(self, name: str) -> bool:
        """Whether the tree has a module of this name."""
        return self._module(name) is not None

    def members(self, path: str) -> set[str]:
        """Public names of a module, or of a class and its base classes; empty when it does not exist."""
        spot = self._spot(path)
        names: set[str] = set()
        if spot is not None and spot.node is None:
            names.update(spot.module.names)
        elif spot is not None and isinstance(spot.node, ast.ClassDef):
            for _, cls in self._lineage(spot.module, spot.node, set()):
                names.update(self._body_of(cls)[0])
        return {name for name in names if name[0] != "_"}

    def defining(self, names: Iterable[str]) -> dict[str, set[str]]:
        """Modules that define each of the names at their top level, found by text."""
        wanted = {name: set[str]() for name in names}
        if not wanted:
            return wanted
        either = "|".join(map(re.escape, wanted)).encode()
        pattern = re.compile(rb"^(?:(?:async )?def|class) +(%s)\b|^(%s) *[:=]" % (either, either), re.MULTILINE)
        for file in self.files.names():
            for match in pattern.finditer(self.files.read(file) or b""):
                wanted[(match[1] or match[2]).decode()].add(_module_of(file))
        return wanted

    def _read_version(self) -> str | None:
        source = self.files.read(f"{PACKAGE}/_version.py") or b""
        match = re.search(rb"^__version__\b[^\n]*= *['\"]([^'\"]+)", source, re.MULTILINE)
        return match[1].decode() if match else None

    # -- parsing

    def _module(self, name: str) -> _Module | None:
        if name not in self._modules:
            self._modules[name] = self._parse(name)
        return self._modules[name]

    def _parse(self, name: str) -> _Module | None:
        stem = name.replace(".", "/")
        for file, package in ((f"{stem}/__init__.py", name), (f"{stem}.py", name.rpartition(".")[0])):
            source = self.files.read(file)
            if source is not None:
                body = self._body(file, source)
                names, stars = _bindings(body, package)
                return _Module(name, names, stars, body)
        return None

    def _body(self, file: str, source: bytes) -> list[ast.stmt]:
        try:
            return ast.parse(source, file).body
        except SyntaxError as error:
            where, problem = f"{file}, line {error.lineno}", error.msg
        except (ValueError, RecursionError, MemoryError) as error:
            where, problem = file, str(error) or type(error).__name__
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise UsageError(
            f"{self.given}: {where} cannot be parsed by Python {version}: {problem}. "
            f"Repair the file, or run kunhook with the Python that this SGLang needs."
        )

    # -- following names

    def _locate(self, module: str, parts: tuple[str, ...], seen: set[tuple[str, ...]]) -> _Spot | None:
        """Find ``parts`` below a module: what it binds, its submodules, what it imports with a star."""
        parsed = self._module(module)
        if (module, *parts) in seen:
            return None
        seen.add((module, *parts))
        if not parts:
            return None if parsed is None else _Spot(parsed, (), None)
        spot = None
        if parsed is not None:
            for binding in parsed.names.get(parts[0], ()):
                spot = spot or self._follow(parsed, {}, parts[:1], binding, parts[1:], seen)
            for star in parsed.stars:
                spot = spot or self._locate(star, parts, seen)
        return spot or self._locate(f"{module}.{parts[0]}", parts[1:], seen)

    def _follow(
        self,
        module: _Module,
        scope: _Names,
        qualname: tuple[str, ...],
        binding: _Binding,
        rest: tuple[str, ...],
        seen: set[tuple[str, ...]],
    ) -> _Spot | None:
        """Go from a binding to the name behind it, then down to ``rest``. ``scope`` is the class around it."""
        if isinstance(binding, _Alias):
            return self._locate(binding.module, (*binding.parts, *rest), seen)
        if isinstance(binding, ast.Name) and binding.id in scope and binding not in scope[binding.id]:
            return self._follow(module, {}, (*qualname[:-1], binding.id), scope[binding.id][0], rest, seen)
        if isinstance(binding, ast.Name | ast.Attribute):
            chain = _chain(binding)
            spot = self._locate(module.name, (*chain, *rest), seen) if chain else None
            if spot is not None:
                return spot
        if not rest:
            return _Spot(module, qualname, binding)
        if isinstance(binding, ast.ClassDef):
            return self._member(module, qualname, binding, rest, seen)
        if isinstance(binding, ast.FunctionDef) and len(rest) == 1 and rest[0] in _stored([binding]):
            return _Spot(module, (*qualname, *rest), ast.Constant(None))
        return None

    def _member(
        self,
        module: _Module,
        qualname: tuple[str, ...],
        cls: ast.ClassDef,
        rest: tuple[str, ...],
        seen: set[tuple[str, ...]],
    ) -> _Spot | None:
        for owner, base in self._lineage(module, cls, set()):
            names, stored = self._body_of(base)
            where = qualname if base is cls else (base.name,)
            for binding in names.get(rest[0], ()):
                spot = self._follow(owner, names, (*where, rest[0]), binding, rest[1:], seen)
                if spot is not None:
                    return spot
            if len(rest) == 1 and rest[0] in stored:
                return _Spot(owner, (*where, *rest), ast.Constant(None))
        return None

    def _body_of(self, cls: ast.ClassDef) -> tuple[_Names, set[str]]:
        """Names a class binds, and attributes its methods store on the instance."""
        if cls not in self._classes:
            names, _ = _bindings(cls.body, "")
            methods = [node for nodes in names.values() for node in nodes if isinstance(node, ast.FunctionDef)]
            self._classes[cls] = names, _stored(methods)
        return self._classes[cls]

    def _lineage(
        self, module: _Module, cls: ast.ClassDef, seen: set[tuple[str, str]]
    ) -> Iterator[tuple[_Module, ast.ClassDef]]:
        """The class and those of its base classes that are in the tree, depth first."""
        if (module.name, cls.name) in seen:
            return
        seen.add((module.name, cls.name))
        yield module, cls
        for base in cls.bases:
            chain = _chain(base.value if isinstance(base, ast.Subscript) else base)
            spot = self._locate(module.name, chain, set()) if chain else None
            if spot is not None and isinstance(spot.node, ast.ClassDef):
                yield from self._lineage(spot.module, spot.node, seen)

    def _describe(self, spot: _Spot) -> Found:
        path = f"{spot.module.name}:{'.'.join(spot.qualname)}" if spot.qualname else spot.module.name
        node = spot.node
        if node is None:
            return Found(path, "module")
        if isinstance(node, ast.ClassDef):
            return Found(path, "class")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_property(node):
            return Found(path, "property")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return Found(path, signatures.text_of(signatures.parameters_of(node.args)))
        if isinstance(node, ast.Attribute) and (chain := _chain(node)):
            holder = self._locate(spot.module.name, chain[:-1], set())
            text = signatures.text_of_object(getattr(_container(holder.node if holder else None), chain[-1], None))
            if text is not None and text[0] == "(":
                return Found(path, signatures.text_of(signatures.parse(text)[1:]))
        return Found(path, "value")


def _module_of(file: str) -> str:
    parts = PurePosixPath(file).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _chain(node: ast.AST) -> tuple[str, ...]:
    """``a.b.c`` as its parts; empty for any other expression."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute) and (start := _chain(node.value)):
        return (*start, node.attr)
    return ()


def _container(node: ast.AST | None) -> type[Any] | None:
    """The built-in container an expression makes, where that can be seen."""
    if isinstance(node, ast.BinOp):
        return _container(node.left)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return {"list": list, "set": set, "dict": dict, "sorted": list, "defaultdict": dict}.get(node.func.id)
    kinds = {ast.List: list, ast.ListComp: list, ast.Set: set, ast.SetComp: set, ast.Dict: dict, ast.DictComp: dict}
    return kinds.get(type(node))  # type: ignore[arg-type]


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    last = [_chain(decorator)[-1:] for decorator in node.decorator_list]
    return any(name in (("property",), ("cached_property",), ("setter",)) for name in last)


def _called(spot: _Spot) -> set[str]:
    """Names of the functions and methods that a function, or the top level of a module, calls."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = [s for s in spot.module.body if not isinstance(s, definitions)] if spot.node is None else [spot.node]
    calls = (inner for node in nodes for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return {chain[-1] for call in calls if (chain := _chain(call.func))}


def _stored(functions: Iterable[ast.FunctionDef]) -> set[str]:
    """Attributes that functions store on their first parameter, which is how instances get theirs."""
    stored: set[str] = set()
    for function in functions:
        first = next((a.arg for a in (*function.args.posonlyargs, *function.args.args)), None)
        attributes = (node for node in ast.walk(function) if isinstance(node, ast.Attribute))
        stored.update(a.attr for a in attributes if isinstance(a.ctx, ast.Store) and _chain(a.value) == (first,))
    return stored


def _bindings(body: Iterable[ast.stmt], package: str) -> tuple[_Names, list[str]]:
    """Names a module or class body binds, and the modules it imports everything from."""
    names: _Names = {}
    stars: list[str] = []
    for branch, statement in _statements(body):
        for name, binding in _bound(statement, package):
            if name == "*":
                stars.append(binding.module)  # type: ignore[union-attr]
                continue
            known = names.setdefault(name, [])
            if not branch and not (known and _decorates(binding, known[0])):
                known.clear()
            # Of alternatives, the first normally holds; a None before them is only a preparation.
            known.insert(0 if known and isinstance(known[0], ast.Constant) else len(known), binding)
    return names, stars


def _decorates(binding: _Binding, definition: _Binding) -> bool:
    """Whether a name that is bound again is bound to the same thing, passed through a call."""
    return isinstance(definition, ast.ClassDef | ast.FunctionDef) and isinstance(binding, ast.Call)


def _statements(body: Iterable[ast.stmt], branch: bool = False) -> Iterator[tuple[bool, ast.stmt]]:
    """Statements of a body and of its branches, and whether they are in one."""
    for statement in body:
        if isinstance(statement, ast.If):
            if _chain(statement.test)[-1:] != ("TYPE_CHECKING",):
                yield from _statements(statement.body, True)
            yield from _statements(statement.orelse, True)
        elif isinstance(statement, ast.Try):
            yield from _statements([*statement.body, *statement.orelse], branch)
            yield from _statements([s for handler in statement.handlers for s in handler.body], True)
            yield from _statements(statement.finalbody, branch)
        elif isinstance(statement, ast.With):
            yield from _statements(statement.body, branch)
        else:
            yield branch, statement


def _bound(statement: ast.stmt, package: str) -> Iterator[tuple[str, _Binding]]:
    match statement:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name, statement
        case ast.Assign(targets=places, value=value):
            for place in places:
                if isinstance(place, ast.Name):
                    yield place.id, value
                elif isinstance(place, ast.Tuple | ast.List):
                    yield from ((e.id, statement) for e in place.elts if isinstance(e, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name), value=annotated):
            yield name, annotated or statement
        case ast.Import(names=aliases):
            for alias in aliases:
                module = alias.name if alias.asname else alias.name.partition(".")[0]
                yield alias.asname or module, _Alias(module, ())
        case ast.ImportFrom(names=aliases):
            source = _source(statement, package)
            for alias in aliases:
                yield alias.asname or alias.name, _Alias(source, () if alias.name == "*" else (alias.name,))


def _source(statement: ast.ImportFrom, package: str) -> str:
    if not statement.level:
        return statement.module or ""
    parents = package.split(".")[: len(package.split(".")) - statement.level + 1]
    return ".".join([*parents, *filter(None, [statement.module])])


# -- the comparison

_WATCHED = ("sglang.srt.platforms.interface:SRTPlatform", "sglang.srt.platforms.interface:PlatformCapabilities")
_EXTENDING = re.compile(r"register_\w+|add_\w+_choices")


def compare(old: Tree, new: Tree, wanted: Iterable[Target] = targets.TARGETS) -> Report:
    """Compare two versions at every target, and look for seams nobody catalogued.

    Args:
        old: the version that is in use.
        new: the version to go to.
        wanted: targets to compare, also those of other versions.

    Raises:
        UsageError: a file that is needed cannot be read or parsed.
    """
    groups: dict[tuple[str, str], list[Target]] = {}
    for target in wanted:
        groups.setdefault((target.hook, target.path), []).append(target)
    comparison = _Comparison(old, new, groups)
    findings = [finding for group in groups.values() if (finding := comparison.finding(group)) is not None]
    return Report(old.label, new.label, (*findings, *comparison.uncatalogued()))


def debt_of_plugin(target: str, sglang: str, trees: Sequence[Tree]) -> Target:
    """The target of a plugin's workaround, named ``package.module.Class.member`` as SGLang's hook registry wants it."""
    parts = target.split(".")
    for count in range(len(parts) - 1, 0, -1):
        if any(tree.has_module(".".join(parts[:count])) for tree in trees):
            break
    else:
        count = len(parts) - 1
    path = f"{'.'.join(parts[:count])}:{'.'.join(parts[count:])}"
    return Target(hook="get_triton_workarounds", path=path, signature="", sglang=sglang, role=Role.DEBT)


def _judged_as(tree: Tree) -> str:
    """The version whose targets count: a version outside the catalogued range is held to the nearest inside."""
    if tree.version is None:
        return targets.VERIFIED[-1]
    if versions.unmet(PACKAGE, tree.version, catalogue.SUPPORTED) is None:
        return tree.version
    oldest = targets.VERIFIED[0]
    return oldest if versions.unmet(PACKAGE, tree.version, f"<{oldest}") is None else targets.VERIFIED[-1]


class _Comparison:
    """State of one comparison."""

    def __init__(self, old: Tree, new: Tree, groups: Mapping[tuple[str, str], list[Target]]) -> None:
        self.old, self.new = old, new
        self.paths = {path for _, path in groups}
        every = [target for group in groups.values() for target in group]
        self.expected_old = set(targets.valid_in(_judged_as(old), every))
        self.expected_new = set(targets.valid_in(_judged_as(new), every))
        self.debts = {seam.hook for seam in catalogue.SEAMS if seam.kind is catalogue.Kind.DEBT}
        gone = [path for path in self.paths if old.find(path) is not None and new.find(path) is None]
        self.defining = new.defining({_top(path) for path in gone} - {""})

    def finding(self, group: list[Target]) -> Finding | None:
        """What happened to one path, for one hook; None when it matters in neither version."""
        path = group[0].path
        was, now = self.old.find(path), self.new.find(path)
        expected = next((t for t in group if t in self.expected_new), None)
        moved_to = None
        if now is None and was is not None:
            moved_to = self._moved_to(path, was.signature)
            now = None if moved_to is None else self.new.find(moved_to)
        if was is None and now is None and (expected is None or expected.role is Role.AVAILABLE):
            return None
        change = _change(was, now, moved_to)
        needs_work, what = self._advice(group, expected, change, was, now, moved_to)
        spare = group[-1].role is Role.AVAILABLE
        return Finding(
            hook=group[0].hook,
            path=path,
            role=(expected or group[-1]).role,
            change=change,
            old_signature=None if was is None else was.signature,
            new_signature=None if now is None else now.signature,
            moved_to=moved_to or _redefined(was, now),
            what_to_do=what,
            needs_work=needs_work,
            retires_debt=spare and change is Change.NEW and group[0].hook in self.debts,
        )

    def uncatalogued(self) -> Iterator[Finding]:
        """Platform members and registration functions that are new and in no target."""
        found: dict[str, Found] = {}
        for holder in _WATCHED:
            for name in self.new.members(holder) - self.old.members(holder):
                found[f"{holder}.{name}"] = self.new.find(f"{holder}.{name}") or Found("", "")
        for module in sorted({path.partition(":")[0] for path in self.paths}):
            for name in filter(_EXTENDING.fullmatch, self.new.members(module) - self.old.members(module)):
                spot = self.new.find(f"{module}:{name}")
                if spot is not None and spot.signature[0] == "(" and self.old.find(spot.path) is None:
                    found.setdefault(spot.path, spot)
        known = {spot.path for path in self.paths if (spot := self.new.find(path)) is not None}
        for path in sorted(found.keys() - self.paths - known):
            yield Finding(
                hook="",
                path=path,
                role=Role.AVAILABLE,
                change=Change.NEW,
                old_signature=None,
                new_signature=found[path].signature,
                moved_to=None,
                what_to_do="Not catalogued yet. See whether it retires a debt or serves a hook, then add a Target.",
                needs_work=False,
            )

    def _moved_to(self, path: str, signature: str) -> str | None:
        """Where the same qualified name is defined now; None when it is nowhere, or was there before."""
        module, _, qualname = path.partition(":")
        candidates = []
        for place in self.defining.get(_top(path), ()):
            candidate = f"{place}:{qualname}"
            here, before = self.new.find(candidate), self.old.find(candidate)
            parallel = before is not None and before.path.startswith(f"{place}:")
            if here is not None and not parallel:
                candidates.append((here.signature != signature, _distance(module, place), candidate))
        return min(candidates)[2] if candidates else None

    def _advice(
        self,
        group: list[Target],
        expected: Target | None,
        change: Change,
        was: Found | None,
        now: Found | None,
        moved_to: str | None,
    ) -> tuple[bool, str]:
        """Whether kunhook has to change, and a sentence that says how."""
        hook = group[0].hook
        if group[-1].role is Role.AVAILABLE:
            return False, self._spare_advice(hook, expected, change, moved_to)
        if expected is None:
            return False, self._no_longer_used(group, change)
        if change is Change.MOVED:
            return True, f"Take it from {moved_to} there, {_ENTRY}"
        if now is None:
            return (
                True,
                f"{_named(hook)} loses this name there: find what replaced it, {_ENTRY}{self._hint(expected.path)}",
            )
        # The target of a plugin's debt comes without a signature: what the old version has is expected.
        known = expected.signature or (was or now).signature
        if now.signature != known:
            return True, f"Kunhook has {known} ({expected.role}): follow {now.signature} there, {_ENTRY}"
        if change is Change.NEW:
            return False, f"Nothing: kunhook uses it in SGLang {expected.sglang}."
        if change is Change.CHANGED:
            return False, "Nothing: kunhook follows this signature."
        return False, "Nothing: it is still found under this name." if _redefined(was, now) else ""

    def _spare_advice(self, hook: str, expected: Target | None, change: Change, moved_to: str | None) -> str:
        if change is Change.NEW:
            return f"It could {'retire the debt of' if hook in self.debts else 'serve'} hook {hook}."
        if change in (Change.GONE, Change.MOVED) and expected is not None:
            return f"Not used yet; {'correct' if moved_to else 'end'} its entry in kunhook/seams/targets.py."
        return ""

    def _no_longer_used(self, group: list[Target], change: Change) -> str:
        last = group[-1]
        names = [
            target.path.partition(":")[2]
            for target in sorted(self.expected_new - self.expected_old, key=lambda target: target.path)
            if (target.hook, target.role) == (last.hook, last.role) and target.path != last.path
        ]
        if names:
            return f"Nothing: kunhook uses {', '.join(names)} there."
        return "" if change is Change.SAME else "Nothing: kunhook does not use it there."

    def _hint(self, path: str) -> str:
        """Names that are new beside one that is gone, when they look like it."""
        holder, _, name = path.rpartition("." if "." in path.partition(":")[2] else ":")
        text = nearest(name, self.new.members(holder) - self.old.members(holder))
        return f" {text}" if text.startswith("Did you mean") else ""


_ENTRY = "and add a Target for it to kunhook/seams/targets.py."


def _change(was: Found | None, now: Found | None, moved_to: str | None) -> Change:
    if moved_to is not None:
        return Change.MOVED
    if now is None:
        return Change.GONE
    if was is None:
        return Change.NEW
    return Change.SAME if was.signature == now.signature else Change.CHANGED


def _redefined(was: Found | None, now: Found | None) -> str | None:
    return now.path if was is not None and now is not None and was.path != now.path else None


def _named(hook: str) -> str:
    return "Every hook" if hook == targets.EVERY_HOOK else f"Hook {hook}"


def _top(path: str) -> str:
    """The name at the top level of the module; empty for the module itself and its calls."""
    name = path.partition(":")[2].partition(".")[0]
    return "" if name.endswith("()") else name


def _distance(module: str, other: str) -> tuple[int, str]:
    """How far apart two modules are, for sorting."""
    first, second = module.split("."), other.split(".")
    shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
    return len(first) + len(second) - 2 * shared, other
