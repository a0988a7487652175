"""The platform class carries what plugins answer, and nothing nobody asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.distributions import distribution
from tests.support.interpreter import run

DEVICE = '''
"""A device that could capture graphs and has no kernels at all."""

from hookspecs import DeviceCapabilities, DeviceDetection, DeviceRuntime, PluginInfo, hookimpl
from kunhook import activator

plugin_info = PluginInfo(device="acme")
activate = activator("acme")


@hookimpl
def detect_device():
    return DeviceDetection(device="acme", present=True, reason="always")


@hookimpl
def get_device_runtime():
    return DeviceRuntime(
        device_name="acme",
        device_type="cpu",
        dispatch_key="acme",
        driver="kunlun_backend.runtime.sim:SimDriver",
        capabilities=DeviceCapabilities(graph_capture=True, pin_memory=True),
        compute_capability=(7, 5),
    )
'''

ANSWERS = '''
"""Answers to everything that ends on the platform class, and to the server arguments."""

import os

from hookspecs import ArgDefault, ArgProblem, AttnBackend, EnvDefault, SpecSupport, TritonSupport, hookimpl


class GraphRunner: ...
class GraphBackend: ...
class Communicator: ...
class Pool: ...
class Allocator: ...
class Worker: ...
class DraftRunner: ...


def cache_locs(): ...


@hookimpl
def get_graph_runner_cls():
    return "acme_answers:GraphRunner"


@hookimpl
def get_graph_backend_cls(phase):
    return "acme_answers:GraphBackend" if phase == "decode" else None


@hookimpl
def get_comm_backend():
    return "ucc"


@hookimpl
def get_communicator_cls():
    return Communicator


@hookimpl
def get_group_device():
    return "meta:{local_rank}"


@hookimpl
def get_kv_pool_cls(kind):
    return "acme_answers:Pool" if kind == "mha" else None


@hookimpl
def get_paged_allocator_cls():
    return "acme_answers:Allocator"


@hookimpl
def get_compile_backend():
    return "aot_eager"


@hookimpl
def get_triton_support():
    return TritonSupport(supported=True, reason="says so")


@hookimpl
def get_default_attn_backend():
    return "acme_attention"


@hookimpl
def get_attn_backend_cls():
    cls = "sglang.srt.layers.attention.torch_native_backend:TorchNativeAttnBackend"
    return {"acme_attention": AttnBackend(cls=cls, deterministic=True)}


@hookimpl
def get_quantization_config():
    return {os.environ.get("ACME_QUANTIZATION", "w8a8_int8"): "acme_quantization:Config"}


@hookimpl
def supports_algorithm():
    return {
        "EAGLE": SpecSupport(
            supported=True, draft_attn_backends=("acme_attention",), default_draft_attn_backend="acme_attention"
        ),
        "NGRAM": SpecSupport(supported=False, reason="no tree masks"),
    }


@hookimpl
def get_spec_worker_cls():
    return {"EAGLE": "acme_answers:Worker"}


@hookimpl
def get_draft_graph_runner_cls(phase):
    return "acme_answers:DraftRunner" if phase == "draft_decode" else None


@hookimpl
def get_cache_locs_fn():
    return "acme_answers:cache_locs"


@hookimpl
def get_process_env():
    return {name: EnvDefault(value="plugin", reason="test") for name in ("ACME_PROCESS", "ACME_PROCESS_SET")}


@hookimpl
def get_launch_env(server_args):
    ranks = str(server_args.tp_size)
    return {name: EnvDefault(value=ranks, reason="test") for name in ("ACME_RANKS", "ACME_RANKS_SET")}


@hookimpl
def get_server_arg_defaults():
    defaults = {"stream_interval": 4, "schedule_conservativeness": 0.5, "max_running_requests": 7}
    if extra := os.environ.get("ACME_FIELD"):
        defaults[extra] = 1
    return {name: ArgDefault(value=value, reason="test") for name, value in defaults.items()}


@hookimpl
def check_server_args(server_args):
    limits = {"max_running_requests": 512, "stream_interval": 64}
    return [
        ArgProblem(
            field=field,
            value=str(getattr(server_args, field)),
            message=f"acme takes at most {limit}",
            remedy=f"--{field.replace('_', '-')} {limit}",
        )
        for field, limit in limits.items()
        if getattr(server_args, field) > limit
    ]
'''

QUANTIZATION = """
from sglang.srt.layers.quantization.base_config import QuantizationConfig


class Config(QuantizationConfig): ...
"""

PLATFORM = """
import json, sys, typing
import sglang
from sglang.srt.platforms import current_platform as platform


def shown(value):
    return value.__name__ if hasattr(value, "__name__") else value if value is None else str(value)


print(json.dumps({
    "name": [type(platform).__name__, platform.device_name, platform.device_type, platform.is_out_of_tree()],
    "capability": str(platform.get_device_capability().as_version_str()),
    "capture": platform.capabilities.graph_capture,
    "triton": platform.capabilities.supports_triton,
    "pin memory": platform.is_pin_memory_available(),
    "graph runner": shown(platform.get_graph_runner_cls()),
    "graph backend": shown(platform.get_full_graph_backend_cls()),
    "comm backend": platform.get_torch_distributed_backend_str(),
    "communicator": shown(platform.get_communicator_class()),
    "group device": str(platform.get_group_coordinator_device(2)),
    "pools": [shown(platform.get_kv_pool_cls(kind=kind)) for kind in ("mha", "mla", "dsa")],
    "allocator": shown(platform.get_paged_allocator_cls()),
    "compile backend": platform.get_compile_backend(),
    "attention": platform.get_default_attention_backend(),
    "algorithms": [platform.supports_speculative_algorithm(name) for name in ("EAGLE", "NGRAM", "STANDALONE")],
    "draft attention": platform.get_default_speculative_draft_attention_backend("EAGLE"),
    "draft attention allowed": [
        platform.supports_speculative_draft_attention_backend("EAGLE", name) for name in ("acme_attention", "triton")
    ],
    "spec worker": [shown(platform.get_speculative_worker_cls(name)) for name in ("EAGLE", "NGRAM")],
    "draft runner": [
        shown(platform.get_speculative_graph_runner_cls("EAGLE", phase)) for phase in ("draft_decode", "draft_extend")
    ],
    "cache locations": shown(platform.get_speculative_cache_locs_fn()),
    "quantization": [shown(platform.get_quantization_config(name)) for name in ("awq", "gptq")],
    "public names": sorted(
        name for name in vars(type(platform)) if name[0] != "_" and not hasattr(type(platform).__mro__[1], name)
    ),
}))
"""

ARGUMENTS = """
import json, os, sys
import sglang
from sglang.srt.plugins import load_plugins

load_plugins()
from sglang.srt import server_args as module

how, *argv = sys.argv[1:]
sys.argv[1:] = argv
if how == "command line":
    server_args = module.prepare_server_args(argv)
else:
    sys.argv[1:] = []
    server_args = module.ServerArgs(**json.loads(argv[0]))
server_args.resolve_once()
fields = ("stream_interval", "schedule_conservativeness", "max_running_requests", "attention_backend")
resolved = server_args.resolved_dict()
values = {name: resolved[name] for name in fields}
values |= {name: os.environ.get(name) for name in ("ACME_RANKS", "ACME_RANKS_SET", "ACME_PROCESS", "ACME_PROCESS_SET")}
print(json.dumps(values))
"""

WORKER = """
import json
import sglang
from sglang.srt.plugins import load_plugins

load_plugins()
from sglang.srt.platforms import current_platform
current_platform.init_backend()
from sglang.srt.layers.quantization import get_quantization_config
from kunhook import manifest
hooks = manifest.to_builtins(manifest.read()[0])["hooks"]
print(json.dumps({
    "class": get_quantization_config("w8a8_int8").__module__,
    "hooks": {h["hook"]: [h["state"], h["why"]] for h in hooks if h["hook"] != "*"},
}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return distribution(
        tmp_path_factory.mktemp("dist"),
        "acme",
        entry_points={
            "sglang.srt.platforms": {"acme": "acme:activate"},
            "sglang.srt.plugins": {"acme": "kunhook.activation:load"},
            "kunhook.plugins": {"acme": "acme", "acme-answers": "acme_answers"},
        },
        modules={"acme": DEVICE, "acme_answers": ANSWERS, "acme_quantization": QUANTIZATION},
    )


def told(installed: Path, scratch: Path, code: str, *arguments: str, **env: str) -> Any:
    """The JSON a fresh interpreter prints."""
    done = run(code, scratch, env={"SGLANG_PLATFORM": "acme"} | env, path=[installed], arguments=arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def refused(installed: Path, scratch: Path, code: str, *arguments: str, **env: str) -> str:
    """What a fresh interpreter says when it ends with 1."""
    done = run(code, scratch, env={"SGLANG_PLATFORM": "acme"} | env, path=[installed], arguments=arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr[done.stderr.index("kunhook: ") :]


def test_answers_reach_the_platform_class(installed: Path, tmp_path: Path) -> None:
    assert told(installed, tmp_path, PLATFORM) == {
        "name": ["AcmePlatform", "acme", "cpu", True],
        "capability": "7.5",
        "capture": True,
        "triton": True,
        "pin memory": True,
        "graph runner": "GraphRunner",
        "graph backend": "GraphBackend",
        "comm backend": "ucc",
        "communicator": "Communicator",
        "group device": "meta:2",
        "pools": ["Pool", None, None],
        "allocator": "Allocator",
        "compile backend": "aot_eager",
        "attention": "acme_attention",
        "algorithms": [True, False, False],
        "draft attention": "acme_attention",
        "draft attention allowed": [True, False],
        "spec worker": ["Worker", None],
        "draft runner": ["DraftRunner", None],
        "cache locations": "cache_locs",
        "quantization": [None, None],
        "public names": [],
    }


def test_without_answers_sglang_s_own_defaults_hold(installed: Path, tmp_path: Path) -> None:
    found = told(installed, tmp_path, PLATFORM, KUNHOOK_SET='plugins.disable=["acme-answers"]')
    assert found == {
        "name": ["AcmePlatform", "acme", "cpu", True],
        "capability": "7.5",
        # The device could capture, but nobody brings a runner.
        "capture": False,
        "triton": False,
        "pin memory": True,
        "graph runner": None,
        "graph backend": None,
        "comm backend": "gloo",
        "communicator": None,
        "group device": "cpu",
        "pools": [None, None, None],
        "allocator": None,
        "compile backend": "eager",
        "attention": "torch_native",
        "algorithms": [False, False, False],
        "draft attention": "torch_native",
        "draft attention allowed": [False, False],
        "spec worker": [None, None],
        "draft runner": [None, None],
        "cache locations": None,
        "quantization": [None, None],
        "public names": [],
    }


# -- server arguments


@pytest.fixture(scope="module")
def config_only_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model SGLang can resolve arguments for, without weights."""
    folder = tmp_path_factory.mktemp("model")
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128, **sizes}
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 256, "dtype": "bfloat16"}))
    return folder


OURS = {
    "stream_interval": 4,
    "schedule_conservativeness": 0.5,
    "max_running_requests": 7,
    "attention_backend": "acme_attention",
}
SGLANG_S = {"stream_interval": 1, "schedule_conservativeness": 1.0}
ENVIRONMENT = {
    "ACME_RANKS": "1",
    "ACME_RANKS_SET": "operator",
    "ACME_PROCESS": "plugin",
    "ACME_PROCESS_SET": "operator",
}
OPERATOR = {"ACME_RANKS_SET": "operator", "ACME_PROCESS_SET": "operator"}


@pytest.mark.parametrize(
    ("flags", "chosen"),
    [
        pytest.param([], {}, id="nothing"),
        pytest.param(["--stream-interval", "1", "--schedule-conservativeness=1.0"], SGLANG_S, id="SGLang's own values"),
        pytest.param(["--max-running-requests", "3"], {"max_running_requests": 3}, id="another value"),
        pytest.param(["--attention-backend", "torch_native"], {"attention_backend": "torch_native"}, id="attention"),
    ],
)
def test_a_flag_the_user_typed_wins(
    installed: Path, tmp_path: Path, config_only_model: Path, flags: list[str], chosen: dict[str, Any]
) -> None:
    argv = ["--model-path", str(config_only_model), *flags]
    assert told(installed, tmp_path, ARGUMENTS, "command line", *argv, **OPERATOR) == OURS | chosen | ENVIRONMENT


def test_a_key_of_the_configuration_file_wins(installed: Path, tmp_path: Path, config_only_model: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"model-path: {config_only_model}\nstream-interval: 1\nmax-running-requests: 3\n")
    chosen = {"stream_interval": 1, "max_running_requests": 3}
    assert told(installed, tmp_path, ARGUMENTS, "command line", "--config", str(file), **OPERATOR) == (
        OURS | chosen | ENVIRONMENT
    )


def test_an_argument_of_engine_wins(installed: Path, tmp_path: Path, config_only_model: Path) -> None:
    chosen = {"stream_interval": 2, "attention_backend": "torch_native"}
    arguments = json.dumps({"model_path": str(config_only_model), **chosen})
    assert told(installed, tmp_path, ARGUMENTS, "engine", arguments, **OPERATOR) == OURS | chosen | ENVIRONMENT


def test_an_unknown_field_is_refused(installed: Path, tmp_path: Path, config_only_model: Path) -> None:
    argv = ["--model-path", str(config_only_model)]
    message = refused(installed, tmp_path, ARGUMENTS, "command line", *argv, ACME_FIELD="stream_intervall")
    assert "plugin 'acme-answers', hook get_server_arg_defaults[stream_intervall]" in message
    assert "ServerArgs has no field 'stream_intervall'. Did you mean stream_interval" in message


def test_all_problems_of_the_arguments_are_told_together(
    installed: Path, tmp_path: Path, config_only_model: Path
) -> None:
    argv = ["--model-path", str(config_only_model), "--max-running-requests", "1000", "--stream-interval", "100"]
    message = refused(installed, tmp_path, ARGUMENTS, "command line", *argv)
    assert "--max-running-requests 1000: acme takes at most 512. Use --max-running-requests 512." in message
    assert "--stream-interval 100: acme takes at most 64. Use --stream-interval 64." in message
    assert message.count("plugin acme-answers") == 2


# -- a worker


def test_quantization_is_read_back_by_name(installed: Path, tmp_path: Path) -> None:
    found = told(installed, tmp_path, WORKER, KUNHOOK_SET=_ONLY_QUANTIZATION)
    assert found["class"] == "acme_quantization"
    state, why = found["hooks"]["get_quantization_config"]
    assert state == "active"
    assert "read back from quantization.get_quantization_config()" in why


def test_an_unknown_quantization_is_refused(installed: Path, tmp_path: Path) -> None:
    message = refused(installed, tmp_path, WORKER, ACME_QUANTIZATION="w8a8_int9", KUNHOOK_SET=_ONLY_QUANTIZATION)
    assert "plugin 'acme-answers', hook get_quantization_config[w8a8_int9]" in message
    assert "SGLang does not know the method 'w8a8_int9'" in message


_ONLY_QUANTIZATION = ""
