"""``kunhook config``."""

from __future__ import annotations

import click

from kunhook import profile as profiles
from kunhook.activation import current_profile
from kunhook.cli import options

_BUILT_IN = "built-in default"


@click.group("config")
def command() -> None:
    """Effective configuration and where each value comes from."""


@command.command("show")
@options.profile_options
@options.json_option
def show(profile: str | None, overrides: tuple[str, ...], as_json: bool) -> int:
    """Print every effective value and its source."""
    effective = current_profile(profile, overrides)
    rows = [(s.key, s.value, str(s.source)) for s in effective.settings.values()]
    if "plugins.enable" not in effective.settings:
        rows.insert(0, ("plugins.enable", "every installed plugin", _BUILT_IN))
    if as_json:
        options.print_json(
            {
                "file": effective.file,
                "profile": effective.name,
                "chain": list(effective.chain),
                "settings": [{"key": key, "value": value, "source": source} for key, value, source in rows],
                "unmet": list(effective.unmet),
            }
        )
    else:
        where = effective.file or f"none (looked for ${profiles.CONFIG_ENV}, ./kunhook.toml, the user's kunhook.toml)"
        click.echo(f"file:    {where}")
        click.echo(f"profile: {' -> '.join(effective.chain) or '(none)'}")
        options.print_table(("KEY", "VALUE", "SOURCE"), ((key, _text(value), source) for key, value, source in rows))
    for text in effective.unmet:
        click.echo(f"kunhook: {text}", err=True)
    return 1 if effective.unmet else 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else repr(value)
