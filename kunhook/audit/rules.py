"""Which difference a declared seam explains: data only.

A rule matches where the difference is and what is there before and after, as regular expressions
over the whole text. ``{name}`` stands for a fact of the plan, quoted; a rule with ``{key}`` is used
once for each of the hook's answers. The tighter a rule, the more an audit proves: it names the very
thing the plan says SGLang shall hold.
"""

from __future__ import annotations

import msgspec


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One explanation.

    Attributes:
        hook: the hook whose answer SGLang holds there; empty for what the stack itself needs.
        where: place of the difference.
        kind: ``added``, ``removed`` or ``changed``.
        before: what is there without us.
        after: what is there with us.
        why: one sentence for people.
        moved: ``(from, to)``: this side counts only when the other side of the move differs too.
        whole: tell it once for the attribute, not for each thing inside.
    """

    hook: str
    where: str
    kind: str
    before: str = ""
    after: str = ""
    why: str
    moved: tuple[str, str] | None = None
    whole: bool = False


_PLATFORM = r"object kunhook\.seams\.platform\.{platform}"
_COMPILED = (
    r"object torch\._dynamo\.(convert_frame\.CatchErrorsWrapper|eval_frame\.OptimizeContext) of \d+ [0-9a-f]{{10}}"
)
_OPERATORS = r"torch\.library\._impls|sglang\.srt\.utils(\.common)?\.sglang_lib\._op_impls"
_REMEMBERED = "torch remembers an operator from the first time it is used"
_MOVED = "SGLang registers its own custom operators for PrivateUse1 instead of CUDA on a platform out of tree"

RULES: tuple[Rule, ...] = (
    Rule(
        hook="detect_device",
        where=r"sglang\.\S+\._?current_platform",
        kind="changed",
        before=r"object sglang\.srt\.platforms\.\w+\.\w*Platform",
        after=_PLATFORM,
        why="SGLang's platform object is the class composed from the plan",
    ),
    Rule(
        hook="detect_device",
        where=_OPERATORS,
        kind="removed",
        before=r"'sglang/\w+/CUDA'",
        why=_MOVED,
        moved=("/CUDA'", "/PrivateUse1'"),
    ),
    Rule(
        hook="detect_device",
        where=_OPERATORS,
        kind="added",
        after=r"'sglang/\w+/PrivateUse1'",
        why=_MOVED,
        moved=("/PrivateUse1'", "/CUDA'"),
    ),
    Rule(
        hook="get_compile_backend",
        where=r"sglang\.\S+\[\(closure\) (callback|self)\]",
        kind="changed",
        before=_COMPILED,
        after=_COMPILED,
        why="SGLang gives torch.compile the backend the platform names",
        whole=True,
    ),
    Rule(
        hook="get_attn_backend_cls",
        where=r"sglang\.srt\.\S+\.(DETERMINISTIC_)?ATTENTION_BACKEND_CHOICES",
        kind="added",
        after=r"'{key}'",
        why="the name of the backend is a choice of --attention-backend",
    ),
    Rule(
        hook="get_attn_backend_cls",
        where=r"sglang\.srt\.layers\.attention\.attention_registry\.ATTENTION_BACKENDS\[{key}\]",
        kind="added",
        after=r"class {object}|function kunhook\.seams\.registries\.\S+ code \w+ with .*\bcls=class {object}(, .*)?",
        why="the backend's class, or a factory of it, registered by name",
    ),
    Rule(
        hook="get_op_impls",
        where=r"sglang\.\S+\._oot_forward_registry\[{dispatch_key}\]\[class sglang\.\S+\]",
        kind="added",
        after=r"\w+ {package}\.\S+( .*)?",
        why="the forward of the operator under the device's dispatch key",
    ),
    Rule(
        hook="get_hicache_storage",
        where=r"sglang\.srt\.mem_cache\.storage\.backend_factory\.StorageBackendFactory\._registry\[{key}\]\[\w+\]",
        kind="added",
        after=r"'{module}'|'{name}'|function sglang\.srt\.mem_cache\.storage\.backend_factory\..*",
        why="the storage backend, registered by name",
    ),
    Rule(
        hook="get_process_env",
        where=r"environ\.{key}",
        kind="added",
        after=r"{value}",
        why="a default of the device; the operator's value would have won",
    ),
    Rule(
        hook="get_triton_workarounds",
        where=r"\S+",
        kind="changed",
        before=r"function {target} code .*",
        after=r"function {target} code \w+ from sglang\.srt\.plugins\.hook_registry",
        why="the function is replaced through SGLang's hook registry",
    ),
    Rule(
        hook="get_triton_workarounds",
        where=r"sglang\.srt\.plugins\.hook_registry\.HookRegistry\.(_hooks\[{target}\]|_patched)",
        kind="added",
        after=r"'{target}'|tuple of 3 [0-9a-f]{{10}}",
        why="SGLang's record of the replacement",
    ),
    Rule(
        hook="",
        where=r"environ\.KUNHOOK_LAUNCHER",
        kind="added",
        after=r"\d+:[\d.]+:[0-9a-f]+",
        why="processes of one server compare their plans by it",
    ),
    Rule(
        hook="",
        where=r"logging\.kunhook(\.\w+)*",
        kind="added",
        after=r"class logging\.Logger",
        why="the stack's own logger, without any handler, level or filter",
    ),
    Rule(
        hook="",
        where=r"threading\.\(threads\)",
        kind="added",
        after=r"kunhook-control",
        why="the thread that answers 'kunhook trace'",
    ),
    Rule(
        hook="",
        where=r"torch\.ops\.\w+(\.\w+)*",
        kind="added",
        after=r"(object torch\._ops\.OpOverload|module torch\.ops\.|class torch\._ops\._OpNamespace of ).*",
        why=_REMEMBERED,
    ),
    Rule(hook="", where=r"torch\.ops\.\w+(\.\w+)?\._dir", kind="added", after=r"'\w+'", why=_REMEMBERED),
    Rule(
        hook="",
        where=r"torch\.fx\.operator_schemas\._type_eval_globals\[_overload_registry\]\[{loaded}\]",
        kind="added",
        after=r"collections\.defaultdict of .*",
        why="typing notes the overloads of every module that is loaded",
    ),
)
