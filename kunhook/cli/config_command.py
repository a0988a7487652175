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
@click.option("--diff", nargs=2, metavar="A B", help="Compare two profiles instead.")
def show(profile: str | None, overrides: tuple[str, ...], as_json: bool, diff: tuple[str, str] | None) -> int:
    """Print every effective value and its source, or what two profiles set differently."""
    if diff:
        return _diff(*diff, overrides, as_json)
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


def _diff(first: str, second: str, overrides: tuple[str, ...], as_json: bool) -> int:
    left, right = (current_profile(name, overrides).settings for name in (first, second))
    differing = [
        (key, left.get(key), right.get(key))
        for key in sorted({*left, *right})
        if key not in left or key not in right or left[key].value != right[key].value
    ]
    if as_json:
        options.print_json(
            {
                "profiles": [first, second],
                "differences": [
                    {
                        "key": key,
                        **{
                            name: None if setting is None else {"value": setting.value, "source": str(setting.source)}
                            for name, setting in (("a", a), ("b", b))
                        },
                    }
                    for key, a, b in differing
                ],
            }
        )
    elif not differing:
        click.echo(f"profiles {first} and {second} are the same")
    else:
        options.print_table(
            ("KEY", first, second),
            (
                (key, *("(not set)" if s is None else f"{_text(s.value)}  {s.source}" for s in pair))
                for key, *pair in differing
            ),
        )
    return 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else repr(value)
