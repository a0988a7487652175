"""A plugin is accepted whole, or refused with file and line and nothing left behind."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pluggy
import pytest

from hookspecs import HOOKS, PROJECT, SPEC_VERSION, PluginInfo, hookimpl
from kunhook import registration
from kunhook.errors import KunhookError
from kunhook.registration import Registration
from tests.support.workbench import Workbench, detection

bare = pluggy.HookimplMarker(PROJECT)


def register(bench: Workbench, **content: Any) -> tuple[pluggy.PluginManager, Registration]:
    manager = registration.new_manager()
    candidate = bench.plugin("acme")
    plugin = registration.load(candidate)
    vars(plugin).update(content)
    return manager, registration.register(manager, candidate, plugin)


def refused(bench: Workbench, **content: Any) -> str:
    """The message; also proves that pluggy knows nothing of the plugin afterwards."""
    manager = registration.new_manager()
    plugin = registration.load(bench.plugin("acme"))

    def get_host_allocator() -> None: ...

    vars(plugin).update(content, get_host_allocator=hookimpl(get_host_allocator))
    with pytest.raises(KunhookError) as caught:
        registration.register(manager, bench.plugin("acme"), plugin)
    assert manager.get_plugins() == set()
    assert all(getattr(manager.hook, hook).get_hookimpls() == [] for hook in HOOKS)
    return str(caught.value)


def position(function: Callable[..., Any]) -> str:
    return f"{inspect.getsourcefile(function)}:{inspect.getsourcelines(function)[1]}"


def with_unknown_argument(detektion: object) -> str: ...
def with_default(detection: object = None) -> str: ...
def with_keyword_default(*, detection: object = None) -> str: ...
def with_arguments(*arguments: object) -> str: ...
def with_keywords(**arguments: object) -> str: ...
def with_position_only(detection: object, /) -> str: ...
async def as_coroutine() -> str: ...
def as_generator() -> Iterator[str]:
    yield "gloo"


async def as_async_generator() -> Any:
    yield "gloo"  # fmt: skip


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (with_unknown_argument, "unknown argument 'detektion'. The hook is get_comm_backend(detection: "),
        (with_default, "argument 'detection' has a default, which would never be replaced"),
        (with_keyword_default, "argument 'detection' has a default, which would never be replaced"),
        (with_arguments, "*arguments would never be filled"),
        (with_keywords, "**arguments would never be filled"),
        (with_position_only, "argument 'detection' is positional-only"),
        (as_coroutine, "an implementation is a plain function, not an async one"),
        (as_async_generator, "an implementation is a plain function, not an async one"),
        (as_generator, "an implementation is a plain function, not a generator"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_signatures_that_would_only_half_work(bench: Workbench, function: Callable[..., Any], why: str) -> None:
    message = refused(bench, get_comm_backend=hookimpl(function))
    assert message.startswith(f"{position(function)}: plugin 'acme', hook 'get_comm_backend': {why}")


@pytest.mark.parametrize("option", ["tryfirst", "trylast", "wrapper", "hookwrapper"])
def test_options_of_pluggy(bench: Workbench, option: str) -> None:
    def get_comm_backend() -> Iterator[None]:
        yield

    message = refused(bench, get_comm_backend=bare(**{option: True})(get_comm_backend))
    assert message.startswith(f"{position(get_comm_backend)}: ")
    assert f"{option} has no meaning here; use hookimpl(before=..., after=..., replaces=...)" in message


def test_specname(bench: Workbench) -> None:
    message = refused(bench, get_comm_backend=bare(specname="get_group_device")(lambda: "gloo"))
    assert "specname has no meaning here" in message


@pytest.mark.parametrize("hook", ["check_server_args", "get_launch_env", "detect_device"])
def test_replaces_where_everybody_is_called(bench: Workbench, hook: str) -> None:
    message = refused(bench, **{hook: hookimpl(replaces="other")(lambda: None)})
    assert f"hook {hook!r}: replaces has no meaning here: every implementation is called" in message


@pytest.mark.parametrize(
    ("spec_version", "why"),
    [
        (SPEC_VERSION, "no specification has this name. Did you mean get_comm_backend"),
        (SPEC_VERSION + 1, f"needs contract version >= {SPEC_VERSION + 1}, this is {SPEC_VERSION}. Upgrade kunhook"),
    ],
)
def test_an_unknown_name(bench: Workbench, spec_version: int, why: str) -> None:
    def get_com_backend() -> str: ...

    message = refused(
        bench, get_com_backend=hookimpl(get_com_backend), plugin_info=PluginInfo(spec_version=spec_version)
    )
    assert message.startswith(f"{position(get_com_backend)}: plugin 'acme', hook 'get_com_backend': {why}")


def test_a_marked_object_that_is_no_function(bench: Workbench) -> None:
    """pluggy passes over it in silence."""
    message = refused(bench, get_comm_backend=hookimpl(functools.partial(str, "gloo")))
    assert message == (
        "plugin 'acme' (workbench_acme), hook 'get_comm_backend': an implementation is a plain function, not a partial."
    )


def test_plugin_info_of_another_type(bench: Workbench) -> None:
    assert "plugin_info is a dict, not a hookspecs.PluginInfo" in refused(bench, plugin_info={"device": "acme"})


def test_unmarked_functions_are_not_implementations(bench: Workbench) -> None:
    def get_comm_backend(whatever: int = 1, *rest: int) -> str: ...

    _, registered = register(bench, get_comm_backend=get_comm_backend, get_group_device="cpu")
    assert registered.implementations == ()
    assert registered.info == PluginInfo()


def test_what_is_registered(bench: Workbench) -> None:
    @hookimpl(replaces="other")
    def get_comm_init_sizing(detection: object, group: str) -> object:
        return (detection, group)

    manager, registered = register(
        bench, get_comm_init_sizing=get_comm_init_sizing, plugin_info=PluginInfo(device="acme")
    )
    (implementation,) = registered.implementations
    assert (implementation.hook, implementation.plugin) == ("get_comm_init_sizing", "acme")
    assert implementation.marks.replaces == ("other",)
    assert implementation.ask(group="tp", detection="here", unused=1) == ("here", "tp")
    assert registered.info.device == "acme"
    assert [i.plugin_name for i in manager.hook.get_comm_init_sizing.get_hookimpls()] == ["acme"]


def test_bare_pluggy_marks_are_enough(bench: Workbench) -> None:
    def get_comm_backend() -> str:
        return "gloo"

    _, registered = register(bench, get_comm_backend=bare(get_comm_backend))
    assert [i.ask(detection=detection()) for i in registered.implementations] == ["gloo"]


def test_a_wrapped_function_keeps_the_signature_it_wraps(bench: Workbench) -> None:
    def get_comm_backend(detection: object) -> str:
        return "gloo"

    @hookimpl
    @functools.wraps(get_comm_backend)
    def wrapper(*arguments: Any, **keywords: Any) -> str:
        return get_comm_backend(*arguments, **keywords)

    _, registered = register(bench, get_comm_backend=wrapper)
    assert [i.arguments for i in registered.implementations] == [("detection",)]


def test_an_object_and_a_dotted_attribute_are_plugins(bench: Workbench) -> None:
    class Plugin:
        @hookimpl
        def get_comm_backend(self, detection: object) -> str:
            return "gloo"

    class Namespace:
        plugin = Plugin()

    candidate = bench.plugin("acme")
    vars(registration.load(candidate))["namespace"] = Namespace
    dotted = msgspec.structs.replace(candidate, value=f"{candidate.value} : namespace.plugin")
    plugin = registration.load(dotted)
    registered = registration.register(registration.new_manager(), candidate, plugin)
    assert [i.ask(detection=detection()) for i in registered.implementations] == ["gloo"]
