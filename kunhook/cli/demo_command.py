"""``kunhook demo``."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import click

from kunhook.cli import options

QUESTION = "What is the capital of France?"
EXPECTED = "Paris"
_READY_TIMEOUT = 300.0


@click.command("demo")
@options.profile_options
@click.option("--max-tokens", default=64, show_default=True, help="Length of the text that is timed.")
def command(profile: str | None, overrides: tuple[str, ...], max_tokens: int) -> int:
    """Serve a real model on the software Kunlun, ask it one question, show the hooks, stop."""
    from kunhook import launch, manifest
    from kunhook.demo import model
    from kunhook.demo.server import free_port, running

    options.use_sim()
    plan = options.plan_of(profile, overrides)
    device = launch.refuse_unstartable(plan)
    folder = model.prepare()
    port = free_port()
    flags = ["--model-path", str(folder), "--host", "127.0.0.1", "--port", str(port)]
    arguments, environment = launch.command_line(flags), launch.environment(plan, device, overrides)
    with tempfile.TemporaryDirectory(prefix="kunhook-demo-") as work:
        started = time.monotonic()
        with running(arguments, environment, port, Path(work) / "server.log") as server:
            _wait(server)
            click.echo(f"server ready after {time.monotonic() - started:.0f} s, {model.NAME} on {device}\n")
            answer = _ask(server)
            click.echo(f"> {QUESTION}\n{answer}\n")
            tokens, seconds = _time(server, max_tokens)
            click.echo(f"{tokens} tokens in {seconds:.2f} s: {tokens / seconds:.1f} tokens/s\n")
            _show_hooks(server.process.pid)
    # Processes that are killed leave their manifests; reading removes those.
    manifest.read()
    manifest.read()  # processes ended by a signal leave their manifests; a reader removes them
    click.echo("server stopped")
    if EXPECTED not in answer:
        click.echo(f"kunhook: the answer does not contain {EXPECTED!r}", err=True)
        return 1
    return 0


def _wait(server: Any) -> None:
    from rich.console import Console

    with Console(stderr=True).status("starting SGLang"):
        server.wait_ready(_READY_TIMEOUT, lambda: None)


def _ask(server: Any) -> str:
    body = {
        "model": "default",
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "max_tokens": 32,
    }
    return str(server.ask("/v1/chat/completions", body)["choices"][0]["message"]["content"])


def _time(server: Any, max_tokens: int) -> tuple[int, float]:
    body = {
        "text": "Once upon a time",
        "sampling_params": {"temperature": 0, "max_new_tokens": max_tokens, "ignore_eos": True},
    }
    started = time.monotonic()
    answer = server.ask("/generate", body)
    return int(answer["meta_info"]["completion_tokens"]), time.monotonic() - started


def _show_hooks(launcher: int) -> None:
    """The hooks a scheduler of this very server has read back."""
    from kunhook import manifest

    for process in manifest.read():
        if process.manifest.launcher == launcher and process.role.startswith("scheduler"):
            active = [hook for hook in process.manifest.hooks if hook.state == "active"]
            options.print_table(
                ("HOOK", "PLUGIN", "VERSION", "STATE", "WHY"),
                ((f"{h.hook}[{h.key}]" if h.key else h.hook, h.plugin, h.version, h.state, h.why) for h in active),
                title=f"Active in process {process.manifest.pid}, the {process.role.split()[0]}",
            )
            return
    click.echo("kunhook: no manifest of the scheduler was found", err=True)
