"""Profiles: which word is the last, where each value came from, and what no source may say."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

import pytest

from kunhook import _toml, profile
from kunhook.errors import KunhookError, UsageError
from tests.support.workbench import Workbench

PLUGINS = ("kunlun-device", "kunlun-graph", "kunlun-xccl")
POLICY = "hooks.get_capture_policy.params.mode"
LADDER = """
[profile.parent]
plugins.enable = ["kunlun-device"]
hooks.get_capture_policy.params.mode = "off"

[profile.child]
extends = "parent"
hooks.get_capture_policy.params.mode = "piecewise"
"""


@pytest.mark.parametrize(
    ("name", "environment", "sets", "value", "place"),
    [
        (None, "", [], None, None),
        ("parent", "", [], "off", "kunhook.toml:4 [profile.parent]"),
        ("child", "", [], "piecewise", "kunhook.toml:8 [profile.child]"),
        ("child", f"{POLICY}=full", [], "full", "KUNHOOK_SET"),
        ("child", f"{POLICY}=full", [f"{POLICY}=off"], "off", "--set"),
        ("child", "", [f"{POLICY}=off", f"{POLICY}=full"], "full", "--set"),
        (None, f"{POLICY}=full", [], "full", "KUNHOOK_SET"),
    ],
    ids=["defaults", "parent", "child", "environment", "command-line", "last-set", "no-profile"],
)
def test_precedence(
    bench: Workbench, name: str | None, environment: str, sets: list[str], value: str | None, place: str | None
) -> None:
    environ = {"KUNHOOK_SET": environment}
    effective = bench.profile(PLUGINS, LADDER, name=name, sets=sets, environ=environ)
    setting = effective.settings.get(POLICY)
    assert (setting and setting.value, setting and str(setting.source)) == (value, place)


def test_a_child_keeps_what_it_does_not_change(bench: Workbench) -> None:
    effective = bench.profile(PLUGINS, LADDER, name="child")
    assert effective.chain == ("parent", "child")
    assert str(effective.settings["plugins.enable"].source) == "kunhook.toml:3 [profile.parent]"


# -- which file, which profile


@pytest.mark.parametrize("present", [("named", "here", "user"), ("here", "user"), ("user",), ()])
def test_the_file_is_found_in_order(bench: Workbench, tmp_path: Path, present: tuple[str, ...]) -> None:
    files = {
        "named": tmp_path / "named.toml",
        "here": Path("kunhook.toml"),
        "user": tmp_path / "config" / "kunhook" / "kunhook.toml",
    }
    for name in present:
        files[name].parent.mkdir(exist_ok=True)
        files[name].write_text("[profile.default]\nplugins.enable = []\n")
    environ = {**os.environ, **({"KUNHOOK_CONFIG": str(files["named"])} if "named" in present else {})}
    wanted = str(files[present[0]]) if present else None
    assert bench.profile(environ=environ).file == wanted


def test_the_user_folder_without_xdg(bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    file = tmp_path / "home" / ".config" / "kunhook" / "kunhook.toml"
    file.parent.mkdir(parents=True)
    file.write_text("")
    assert profile.config_file(os.environ) == file


@pytest.mark.parametrize(
    ("name", "environ", "picked"),
    [
        (None, {}, None),
        (None, {"KUNHOOK_PROFILE": "parent"}, "parent"),
        ("child", {"KUNHOOK_PROFILE": "parent"}, "child"),
    ],
)
def test_which_profile(bench: Workbench, name: str | None, environ: dict[str, str], picked: str | None) -> None:
    assert bench.profile(PLUGINS, LADDER, name=name, environ=environ).name == picked


def test_a_profile_called_default_is_the_default(bench: Workbench) -> None:
    assert bench.profile(config="[profile.default]\n[profile.other]\n").name == "default"


# -- plugins.enable and plugins.disable


@pytest.mark.parametrize(
    ("parent", "child", "sets", "loaded"),
    [
        ("", "", [], PLUGINS),
        ("disable = ['kunlun-graph']", "", [], ("kunlun-device", "kunlun-xccl")),
        ("enable = []", "", [], ()),
        ("enable = ['kunlun-xccl']", "", [], ("kunlun-xccl",)),
        ("disable = ['kunlun-graph']", "disable = ['kunlun-xccl']", [], ("kunlun-device",)),
        ("disable = ['kunlun-graph']", "enable = ['kunlun-graph']", [], ("kunlun-graph",)),
        ("enable = ['kunlun-graph']", "disable = ['kunlun-graph']", [], ()),
        ("", "enable = ['kunlun-graph']\nplugins.disable = ['kunlun-graph']", [], ()),
        ("", "disable = ['kunlun-graph']\nplugins.enable = ['kunlun-graph']", [], ()),
        ("disable = ['kunlun-graph']", "", ["plugins.enable=['kunlun-graph']"], ("kunlun-graph",)),
        ("enable = ['kunlun-graph']", "", ["plugins.enable=['kunlun-xccl']"], ("kunlun-xccl",)),
        ("", "", ["plugins.disable=['kunlun-xccl']"], ("kunlun-device", "kunlun-graph")),
        ("", "", ["plugins.enable=[]"], ()),
    ],
)
def test_enable_and_disable(
    bench: Workbench, parent: str, child: str, sets: list[str], loaded: tuple[str, ...]
) -> None:
    def line(text: str) -> str:
        return f"plugins.{text}" if text else ""

    config = f"[profile.parent]\n{line(parent)}\n[profile.child]\nextends = 'parent'\n{line(child)}\n"
    effective = bench.profile(PLUGINS, config, name="child", sets=sets)
    assert tuple(plugin for plugin in PLUGINS if effective.plugin_rule(plugin)[0]) == loaded


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        ("", "plugins are enabled unless a profile says otherwise"),
        ("plugins.enable = ['kunlun-graph']", "plugins.enable at kunhook.toml:2 [profile.default]"),
        ("plugins.enable = []", "not listed in plugins.enable at kunhook.toml:2 [profile.default]"),
        ("plugins.disable = ['kunlun-graph']", "plugins.disable at kunhook.toml:2 [profile.default]"),
    ],
)
def test_the_rule_has_its_source(bench: Workbench, config: str, rule: str) -> None:
    assert bench.profile(PLUGINS, f"[profile.default]\n{config}").plugin_rule("kunlun-graph")[1] == rule


# -- plugins.files


def test_plugin_files_add_up_and_are_relative_to_who_names_them(bench: Workbench, tmp_path: Path) -> None:
    folder = tmp_path / "config" / "kunhook"
    folder.mkdir()
    (folder / "kunhook.toml").write_text("[profile.default]\nplugins.files = ['one.py']\nplugins.enable = []\n")
    for file in (folder / "one.py", Path("two.py")):
        file.write_text("")
    effective = bench.profile(sets=["plugins.files=['two.py']", "plugins.disable=['one.py']"])
    assert [(file.name, file.path) for file in effective.files] == [
        ("one.py", str(folder / "one.py")),
        ("two.py", str(Path("two.py").resolve())),
    ]
    assert effective.plugin_rule("two.py") == (True, "plugins.files at --set")
    assert effective.plugin_rule("one.py") == (False, "plugins.disable at --set")


def test_two_plugin_files_of_one_name(bench: Workbench) -> None:
    for folder in ("a", "b"):
        Path(folder).mkdir()
        Path(folder, "mine.py").write_text("")
    with pytest.raises(UsageError, match=r"two plugin files are called mine.py: .*/a/mine.py and .*/b/mine.py"):
        bench.profile(sets=["plugins.files=['a/mine.py', 'b/mine.py']"])


# -- choices and parameters


def test_the_choice_of_a_key_is_stronger(bench: Workbench) -> None:
    effective = bench.profile(
        PLUGINS,
        sets=["hooks.get_kv_pool_cls.use=kunlun-xccl", "hooks.get_kv_pool_cls.keys.mla.use=kunlun-graph"],
    )
    choices = {kind: effective.hook_choice("get_kv_pool_cls", kind) for kind in ("mha", "mla")}
    assert {kind: choice and choice.value for kind, choice in choices.items()} == {
        "mha": "kunlun-xccl",
        "mla": "kunlun-graph",
    }
    assert effective.hook_choice("get_comm_backend", None) is None


def test_params_of_a_key_are_stronger(bench: Workbench) -> None:
    base = "hooks.get_comm_init_sizing"
    effective = bench.profile(
        sets=[f"{base}.params={{ buffer_bytes = 1, queue_chunks = 2 }}", f"{base}.keys.tp.params.buffer_bytes=3"]
    )
    values = {name: s.value for name, s in effective.hook_params("get_comm_init_sizing", "tp").items()}
    assert values == {"buffer_bytes": 3, "queue_chunks": 2}
    assert effective.hook_params("get_comm_init_sizing", "pp")["buffer_bytes"].value == 1


@pytest.mark.parametrize("writing", ["params.queue_chunks = 4", "params = { queue_chunks = 4 }"])
def test_values_of_inline_tables_have_a_line(bench: Workbench, writing: str) -> None:
    effective = bench.profile(config=f"[profile.default]\n\nhooks.get_comm_init_sizing.{writing}\n")
    (setting,) = effective.settings.values()
    assert str(setting.source) == "kunhook.toml:3 [profile.default]"


def test_tables_and_quoted_keys_have_a_line(bench: Workbench) -> None:
    config = '[profile."a.b"]\n# comment\n[profile."a.b".plugins] # comment\n"enable" = [\n  "kunlun-graph",\n]\n'
    effective = bench.profile(PLUGINS, config, name="a.b")
    assert str(effective.settings["plugins.enable"].source) == "kunhook.toml:4 [profile.a.b]"


def test_replaced_values_are_remembered(bench: Workbench) -> None:
    effective = bench.profile(PLUGINS, LADDER, name="child", sets=[f"{POLICY}=full"])
    assert [setting.value for setting in effective.written if setting.key == POLICY] == ["off", "piecewise", "full"]


# -- the environment variable


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a.b=1;c=2", ["a.b=1", "c=2"]),
        ("a=1\nb=2\n", ["a=1", "b=2"]),
        (" ; a = 1 ;; ", ["a = 1"]),
        ("a='x;y';b=\"p\nq\"", ["a='x;y'", 'b="p\nq"']),
        ("", []),
    ],
)
def test_assignments_are_split_outside_quotes(text: str, values: list[str]) -> None:
    assert profile._split(text) == values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("reference", "reference"),
        ("'a b'", "a b"),
        ("[1, 2]", [1, 2]),
        ("true", True),
        ("1_000", 1000),
        ("a#b", "a#b"),
        ("1\nother = 2", "1\nother = 2"),
    ],
)
def test_values_are_toml_or_bare_words(text: str, value: Any) -> None:
    assert _toml.value(text) == value


def test_the_environment_with_quotes_and_semicolons(bench: Workbench) -> None:
    environ = {"KUNHOOK_SET": "plugins.disable=[\"kunlun-graph\"]; ops.rms_norm.use='reference'\nwhen.env.A = 'x;y'"}
    effective = bench.profile(PLUGINS, environ=environ | {"A": "x;y"})
    assert effective.hook_choice("get_op_impls", "rms_norm").value == "reference"
    assert not effective.plugin_rule("kunlun-graph")[0]
    assert effective.settings["when.env.A"].value == "x;y"
    assert {str(setting.source) for setting in effective.settings.values()} == {"KUNHOOK_SET"}
    assert effective.unmet == ()


# -- what no source may say

BAD = {
    "plugins.enable=['kunlun-grph']": "unknown plugin 'kunlun-grph'. Did you mean kunlun-graph",
    "plugins.disable=['kunlun-xcl']": "unknown plugin 'kunlun-xcl'. Did you mean kunlun-xccl",
    "plugins.enabled=[]": "unknown key 'plugins.enabled'. Did you mean plugins.enable",
    "plugins.enable='kunlun-graph'": "plugins.enable takes a list of plugin names, not 'kunlun-graph'",
    "plugins.enable=[1]": "plugins.enable takes a list of plugin names, not [1]",
    "plugins=[]": "unknown key 'plugins'. Did you mean plugins.files or plugins.enable",
    "plugins.files='a.py'": "plugins.files takes a list of paths, not 'a.py'",
    "plugins.files=['a.py']": "plugin file 'a.py': there is no file /",
    "hooks.get_com_backend.use='kunlun-xccl'": "unknown hook 'get_com_backend'. Did you mean get_comm_backend",
    "hooks.get_comm_backend.use='kunlun-xcl'": "unknown plugin 'kunlun-xcl'. Did you mean kunlun-xccl",
    "hooks.get_comm_backend.use=1": "hooks.get_comm_backend.use takes a string, not 1",
    "hooks.get_comm_backend.usr='kunlun-xccl'": "unknown key 'hooks.get_comm_backend.usr'. Did you mean hooks.get_com",
    "hooks.get_comm_backend.keys.a.use='kunlun-xccl'": "get_comm_backend has no keys. Write hooks.get_comm_backend.use",
    "hooks.get_comm_backend={}": "unknown key 'hooks.get_comm_backend'. Did you mean hooks.get_comm_backend.use",
    "hooks.get_kv_pool_cls.keys.mna.use='kunlun-xccl'": "unknown key of get_kv_pool_cls 'mna'. Did you mean mla or mha",
    "hooks.get_kv_pool_cls.keys='mha'": "hooks.get_kv_pool_cls.keys is incomplete",
    "hooks.get_launch_env.keys.A.use='kunlun-xccl'": "get_launch_env has no keys. Write hooks.get_launch_env.use",
    "hooks.check_server_args.use='nobody'": "unknown plugin 'nobody'",
    "hooks={}": "hooks takes hooks.<hook>.use and hooks.<hook>.params",
    "hooks.get_capture_policy.params.mod='off'": "unknown parameter of get_capture_policy 'mod'. Did you mean mode",
    "hooks.get_capture_policy.params.mode='of'": "params.mode = 'of': Invalid enum value 'of'",
    "hooks.get_capture_policy.params.batch_sizes=[1, 'two']": "Expected `int`, got `str` - at `$[1]`",
    "hooks.get_capture_policy.params.batch_sizes=[0]": "Expected `int` >= 1 - at `$[0]`",
    "hooks.get_comm_init_sizing.params.buffer_bytes=-1": "buffer_bytes = -1: Expected `int` >= 0",
    "hooks.get_comm_init_sizing.params.timeout_s='long'": "timeout_s = 'long': Expected `float | null`, got `str`",
    "hooks.get_comm_init_sizing.params=1": "hooks.get_comm_init_sizing.params takes a table of fields, not 1",
    "hooks.get_comm_backend.params.a=1": "get_comm_backend takes no params. Hooks that do: get_comm_init_sizing, get_c",
    "ops.rmsnorm.use='reference'": "unknown operator 'rmsnorm'. Did you mean rms_norm",
    "ops.rms_norm.usage='reference'": "unknown key 'ops.rms_norm.usage'. Did you mean ops.rms_norm.use",
    "ops.rms_norm.use=3": "ops.rms_norm.use takes a string, not 3",
    "ops={}": "ops takes ops.<operator>.use",
    "when.sgl='>=1'": "unknown condition 'when.sgl'. Did you mean when.sglang",
    "when.sglang=1": "when.sglang takes a string, not 1",
    "when.sglang='newest'": "when.sglang: sglang: 'newest' is not a version range",
    "when.sglang.a='>=1'": "unknown condition 'when.sglang.a'",
    "when.host.a='x'": "unknown condition 'when.host.a'",
    "when.env='A'": "when.env takes variables, as in when.env.NAME = \"value\"",
    "when={}": "unknown condition 'when'",
    "hook.get_comm_backend.use='kunlun-xccl'": "unknown key 'hook.get_comm_backend.use'. Did you mean hooks",
}  # fmt: skip


@pytest.mark.parametrize("source", ["parent", "child", "KUNHOOK_SET", "--set"])
@pytest.mark.parametrize(("assignment", "complaint"), BAD.items(), ids=BAD)
def test_bad_input_names_source_and_nearest(bench: Workbench, source: str, assignment: str, complaint: str) -> None:
    line = assignment.replace("=", " = ", 1)
    parent, child = (line if source == name else "" for name in ("parent", "child"))
    config = f"[profile.parent]\n{parent}\n[profile.child]\nextends = 'parent'\n{child}\n"
    with pytest.raises(UsageError) as caught:
        bench.profile(
            PLUGINS,
            config,
            name="child",
            sets=[assignment] if source == "--set" else [],
            environ={"KUNHOOK_SET": assignment} if source == "KUNHOOK_SET" else {},
        )
    place = {"parent": "kunhook.toml:2 [profile.parent]", "child": "kunhook.toml:5 [profile.child]"}.get(source, source)
    assert str(caught.value).startswith(f"{place}: ")
    assert complaint in str(caught.value)


@pytest.mark.parametrize("text", ["ops.rms_norm.use", "=x", "  =1"])
def test_an_assignment_needs_key_and_value(bench: Workbench, text: str) -> None:
    with pytest.raises(UsageError, match=rf"--set: '{re.escape(text)}' is not of the form key=value"):
        bench.profile(sets=[text])


def test_extends_is_for_files(bench: Workbench) -> None:
    with pytest.raises(UsageError, match="--set: 'extends' belongs into a profile"):
        bench.profile(config=LADDER, sets=["extends=parent"])


@pytest.mark.parametrize(
    ("config", "name", "complaint"),
    [
        ("[profile.a\n", None, "kunhook.toml: not valid TOML: .*at line 1, column 11"),
        ("[profile.a]\nx = 1\nx = 2\n", None, "kunhook.toml: not valid TOML: .*at line 3, column "),
        ("[profiles.a]\n", None, r"kunhook.toml:1: unknown key 'profiles'. Only \[profile.<name>\]"),
        ("profile = 1\n", None, "kunhook.toml: 'profile' must be a table"),
        ("[profile]\na = 1\n", None, "kunhook.toml:2: profile 'a' must be a table, not 1"),
        ("[profile.prod]\n", "prd", "--profile prd: kunhook.toml has no such profile. Did you mean prod"),
        ("[profile.a]\nextends = 'base'\n[profile.bases]\n", "a", r"kunhook.toml:2: profile 'base' .* \(a -> base\)"),
        ("[profile.a]\nextends = ['b']\n", "a", r"kunhook.toml:2: 'extends' takes one profile name, not \['b'\]"),
        ("[profile.a]\nextends = 'a'\n", "a", r"kunhook.toml: 'extends' goes round in a circle: a -> a\. Remove"),
        (
            "[profile.a]\nextends='b'\n[profile.b]\nextends='c'\n[profile.c]\nextends='b'\n",
            "a",
            r"circle: a -> b -> c -> b\. Remove",
        ),
    ],
)
def test_a_broken_file(bench: Workbench, config: str, name: str | None, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        bench.profile(config=config, name=name)


@pytest.mark.parametrize(
    ("environ", "complaint"),
    [
        ({"KUNHOOK_PROFILE": "prod"}, "KUNHOOK_PROFILE=prod: there is no configuration file"),
        ({"KUNHOOK_CONFIG": "/nowhere.toml"}, "KUNHOOK_CONFIG=/nowhere.toml: there is no such file"),
    ],
)
def test_the_environment_names_what_is_not_there(bench: Workbench, environ: dict[str, str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        bench.profile(environ=environ)


def test_a_file_that_is_not_text(bench: Workbench) -> None:
    Path("kunhook.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"kunhook.toml: cannot be read: .*utf-8"):
        bench.profile()


# -- when


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("sglang = '>=0.5.17'", None),
        ("sglang = '>=0.6'", "sglang 0.5.23 is installed, wanted sglang>=0.6"),
        (f"host = '{platform.node()}'", None),
        ("host = '*'", None),
        ("host = 'no-such-host-*'", f"this host is {platform.node()!r}"),
        ("env.CLUSTER = 'a'", None),
        ("env.CLUSTER = 'b'", "CLUSTER is 'a'"),
        ("env.OTHER = 'b'", "OTHER is None"),
    ],
)
def test_conditions(bench: Workbench, condition: str, reason: str | None) -> None:
    config = f"[profile.default]\nwhen.{condition}\n"
    unmet = bench.profile(config=config, environ={"CLUSTER": "a"}).unmet
    key, _, value = condition.partition(" = ")
    text = f"kunhook.toml:2 [profile.default]: the profile applies when {key} is {value}, but {reason}."
    assert [line.split(" Pick")[0] for line in unmet] == ([text] if reason else [])


@pytest.mark.parametrize(
    ("wanted", "applies"), [("acme", True), ("sim", True), ("acme/*", True), ("other", False), ("acme/card", False)]
)
def test_the_condition_on_the_device(bench: Workbench, wanted: str, applies: bool) -> None:
    reason = bench.profile(config=f"[profile.default]\nwhen.device = '{wanted}'\n").unmet_device("acme", "sim")
    assert (reason is None) is applies
    assert applies or f"kunhook.toml:2 [profile.default]: the profile applies when device is '{wanted}'" in str(reason)


def test_a_profile_error_is_wrong_usage(bench: Workbench) -> None:
    with pytest.raises(KunhookError) as caught:
        bench.profile(sets=["x=1"])
    assert caught.value.exit_code == 2
