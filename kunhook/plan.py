"""The plan: which plugin answers which hook, and why. Frozen, comparable, printable.

``compose`` runs the whole planning: discover, filter by profile, check versions, register, detect
the device, resolve, freeze. It imports plugins and nothing else, and it never raises because of a
plugin: what went wrong is in ``rows`` and ``problems``, so that a listing survives what a server
must refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import msgspec

from hookspecs import HOOKS, DeviceDetection, HookSpec
from kunhook import answers, registration, resolve, versions
from kunhook.digest import digest_of
from kunhook.discovery import Candidate, candidates, from_file, twice
from kunhook.errors import KunhookError, describe, nearest
from kunhook.order import ordered
from kunhook.profile import NOBODY, Profile
from kunhook.registration import Implementation, Registration
from kunhook.resolve import PROFILE_PLUGIN, Answer, Proposal
from kunhook.seams.catalogue import seam_of

ANY_HOOK = "*"
"""Hook of a row about a plugin as a whole: blocked, failed to load, or without any hook."""


class State(StrEnum):
    """What became of one plugin's answer to one hook."""

    ACTIVE = "active"
    SHADOWED = "shadowed"
    BLOCKED = "blocked"
    INACTIVE = "inactive"
    FAILED = "failed"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the plan."""

    hook: str
    key: str
    plugin: str
    distribution: str
    version: str
    state: State
    why: str
    seam: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A composed plan.

    Attributes:
        device: the detection that won; None when no device is present.
        detections: every detection, in order.
        registrations: every plugin that was loaded and accepted.
        rows: one line per (hook, key, plugin).
        answers: hook to key to winning answer; hooks without keys use the key ``""``.
        calls: hook to the implementations that are called later, in order.
        problems: reasons this plan must not be started.
        profile: the configuration it was composed from.
        sglang: version of SGLang found, or None.
        digest: over everything that changes behaviour.
    """

    device: DeviceDetection | None
    detections: tuple[DeviceDetection, ...]
    registrations: tuple[Registration, ...]
    rows: tuple[Row, ...]
    answers: Mapping[str, Mapping[str, Answer]]
    calls: Mapping[str, tuple[Implementation, ...]]
    problems: tuple[str, ...]
    profile: Profile
    sglang: str | None
    digest: str

    def value(self, hook: str, key: str = "") -> Any:
        """The winning answer to a hook, or None."""
        answer = self.answers.get(hook, {}).get(key)
        return None if answer is None else answer.value

    def named(self, hook: str) -> dict[str, Any]:
        """All winning answers to a hook by key."""
        return {key: answer.value for key, answer in self.answers.get(hook, {}).items()}

    @property
    def absent_reason(self) -> str:
        """Why no device is present, as one line."""
        return "; ".join(d.reason for d in self.detections) or "no plugin detects a device"


def compose(
    profile: Profile,
    *,
    device: str | None = None,
    full: bool = False,
    assume: bool = False,
    found: tuple[Candidate, ...] | None = None,
) -> Plan:
    """Compose the plan of this machine.

    Args:
        profile: the effective configuration.
        device: consider this device only; None takes the first that is present.
        full: let plugins load the vendor's runtime to prove that it works.
        assume: compose for the first device a plugin looks for, whether it is here or not.
        found: plugins to consider, in any order; default all installed ones.

    Returns:
        The plan, also when it cannot be started; see ``Plan.problems``.
    """
    return _Composition(profile, device, full, assume).run(candidates() if found is None else found)


class _Composition:
    """State of one run of ``compose``."""

    def __init__(self, profile: Profile, device: str | None, full: bool, assume: bool) -> None:
        self.profile = profile
        self.wanted_device = device
        self.full = full
        self.assume = assume
        self.sglang = versions.installed(versions.SGLANG)
        self.rows: list[Row] = []
        self.problems: list[str] = list(profile.unmet)
        self.answers: dict[str, dict[str, Answer]] = {}
        self.calls: dict[str, tuple[Implementation, ...]] = {}
        self.plugins: dict[str, Candidate] = {}

    def run(self, found: tuple[Candidate, ...]) -> Plan:
        registered = self._register(sorted([*found, *self._files(found)]))
        detections, device = self._detect(registered)
        active = [r for r in registered if self._may_answer(r, device)]
        if device is not None:
            self._answer(active, device)
        self._add_silent_plugins(registered)
        self.rows.sort(key=lambda row: (row.hook, row.key, row.plugin))
        plan = Plan(
            device=device,
            detections=detections,
            registrations=tuple(registered),
            rows=tuple(self.rows),
            answers=MappingProxyType({hook: MappingProxyType(keys) for hook, keys in self.answers.items()}),
            calls=MappingProxyType(self.calls),
            problems=tuple(self.problems),
            profile=self.profile,
            sglang=self.sglang,
            digest="",
        )
        return msgspec.structs.replace(plan, digest=digest_of(plan))

    # -- loading

    def _files(self, found: tuple[Candidate, ...]) -> Iterator[Candidate]:
        taken = {candidate.name: candidate for candidate in found}
        for file in self.profile.files:
            if other := taken.get(file.name):
                self.problems.append(
                    f"{file.source}: plugin file {file.path} has the name of the plugin {other.name!r} "
                    f"({other.distribution}). Rename the file."
                )
            else:
                yield from_file(file.name, file.path)

    def _register(self, found: list[Candidate]) -> list[Registration]:
        manager = registration.new_manager()
        result = []
        ambiguous = twice(found)
        self.problems.extend(f"plugin {name!r}: {why}" for name, why in ambiguous.items())
        for candidate in found:
            self.plugins[candidate.name] = candidate
            if candidate.name in ambiguous:
                self._row(ANY_HOOK, "", candidate.name, State.FAILED, ambiguous[candidate.name])
                continue
            allowed, rule = self.profile.plugin_rule(candidate.name)
            if not allowed:
                self._row(ANY_HOOK, "", candidate.name, State.BLOCKED, rule)
                continue
            try:
                plugin = registration.load(candidate)
                registered = registration.register(manager, candidate, plugin)
                reason = self._unfit(registered)
            except (Exception, SystemExit) as error:
                why = str(error) if isinstance(error, KunhookError) else describe(error)
                self._failed(candidate.name, why)
                continue
            if reason is None:
                result.append(registered)
        return result

    def _unfit(self, registered: Registration) -> str | None:
        """Why a loaded plugin cannot be used with what is installed; adds its row."""
        name, info = registered.candidate.name, registered.info
        if self.sglang is not None and (reason := versions.unmet("sglang", self.sglang, info.sglang)):
            self._failed(name, reason)
            return reason
        for requirement in info.requires:
            if reason := versions.unmet_requirement(requirement):
                if name in (self.profile.settings["plugins.enable"].value if self._opted_in() else ()):
                    self._failed(name, reason)
                else:
                    self._row(ANY_HOOK, "", name, State.INACTIVE, reason)
                return reason
        return None

    def _opted_in(self) -> bool:
        return "plugins.enable" in self.profile.settings

    def _failed(self, plugin: str, why: str) -> None:
        candidate = self.plugins[plugin]
        self._row(ANY_HOOK, "", plugin, State.FAILED, why)
        self.problems.append(
            f"plugin {plugin!r} ({candidate.distribution} {candidate.version}) failed: {why}. "
            f'Repair it, or disable it with plugins.disable = ["{plugin}"] in the profile '
            f"or --set 'plugins.disable=[\"{plugin}\"]'."
        )

    # -- the device

    def _detect(self, registered: list[Registration]) -> tuple[tuple[DeviceDetection, ...], DeviceDetection | None]:
        hook = "detect_device"
        detections: list[tuple[str, DeviceDetection]] = []
        for implementation in self._chosen(hook, self._implementations(registered, hook)):
            try:
                value = answers.checked(HOOKS[hook], implementation.plugin, implementation.ask(full=self.full))
            except (Exception, SystemExit) as error:
                self._hook_failed(hook, "", implementation.plugin, error)
                continue
            if value is None:
                self._row(hook, "", implementation.plugin, State.INACTIVE, f"answered None: {HOOKS[hook].marks.none}")
            elif self.wanted_device not in (None, value.device):
                why = f"detects device {value.device!r}, the device looked for is {self.wanted_device!r}"
                self._row(hook, value.device, implementation.plugin, State.INACTIVE, why)
            else:
                detections.append((implementation.plugin, value))
        winner = next((detection for _, detection in detections if detection.present), None)
        if winner is None and self.assume and detections:
            plugin, detection = detections[0]
            winner = msgspec.structs.replace(
                detection, present=True, broken=False, reason=f"assumed to be present; {detection.reason}"
            )
            detections[0] = (plugin, winner)
        if winner is not None and (reason := self.profile.unmet_device(winner.device, winner.variant)):
            self.problems.append(reason)
        for plugin, detection in detections:
            key = detection.device
            if detection.broken:
                self._row(hook, key, plugin, State.FAILED, detection.reason)
                self.problems.append(f"device {detection.device!r} is broken: {detection.reason}")
            elif detection is winner:
                self._row(hook, key, plugin, State.ACTIVE, detection.reason)
            elif detection.present:
                self._row(hook, key, plugin, State.INACTIVE, f"device {winner.device!r} is used" if winner else "")
            else:
                self._row(hook, key, plugin, State.INACTIVE, detection.reason)
        return tuple(detection for _, detection in detections), winner

    def _may_answer(self, registered: Registration, device: DeviceDetection | None) -> bool:
        """Whether a plugin takes part; adds rows for every hook of one that does not."""
        wanted = registered.info.device
        if device is None:
            why = self._absent_reason(wanted)
        elif wanted is not None and wanted != device.device:
            why = f"drives device {wanted!r}, the device in use is {device.device!r}"
        else:
            return True
        for implementation in registered.implementations:
            if implementation.hook != "detect_device":
                self._row(implementation.hook, "", registered.candidate.name, State.INACTIVE, why)
        return False

    def _absent_reason(self, device: str | None) -> str:
        reasons = {row.key: row.why for row in self.rows if row.hook == "detect_device" and row.state != State.ACTIVE}
        if device is not None and device in reasons:
            return reasons[device]
        return "; ".join(reasons.values()) or "no enabled plugin detects a device"

    # -- answers

    def _answer(self, active: list[Registration], device: DeviceDetection) -> None:
        for name, spec in HOOKS.items():
            if name == "detect_device":
                continue
            implementations = self._implementations(active, name)
            if spec.has_winner:
                self._resolve(spec, implementations, device)
            else:
                self._call_later(spec, implementations)
        missing = resolve.missing_vendor_ops(self.answers)
        self.problems.extend(missing)
        if "get_device_runtime" not in self.answers:
            self.problems.append(
                f"no plugin answers get_device_runtime for device {device.device!r}: enable the plugin that drives it."
            )

    def _call_later(self, spec: HookSpec, implementations: tuple[Implementation, ...]) -> None:
        implementations = self._chosen(spec.name, implementations)
        if not implementations:
            return
        self.calls[spec.name] = implementations
        for implementation in implementations:
            why = f"called in order at {spec.marks.asked}"
            self._row(spec.name, "", implementation.plugin, State.ACTIVE, why)

    def _chosen(self, hook: str, implementations: tuple[Implementation, ...]) -> tuple[Implementation, ...]:
        """Implementations of a hook that calls everybody, less those the profile switched off."""
        choice = self.profile.hook_choice(hook, None)
        if choice is None:
            return implementations
        kept = tuple(i for i in implementations if i.plugin == choice.value)
        for implementation in implementations:
            if implementation not in kept:
                why = f"{choice.value!r} is chosen at {choice.source}"
                self._row(hook, "", implementation.plugin, State.SHADOWED, why)
        if not kept and choice.value != NOBODY:
            self.problems.append(
                f"{choice.source}: hooks.{hook}.use = {choice.value!r}, which does not answer the hook. "
                f"{nearest(choice.value, [*(i.plugin for i in implementations), NOBODY])}"
            )
        return kept

    def _resolve(self, spec: HookSpec, implementations: tuple[Implementation, ...], device: DeviceDetection) -> None:
        proposals: list[Proposal] = []
        for key in spec.marks.keys or ("",):
            for implementation in implementations:
                available: dict[str, Any] = {"detection": device}
                if spec.marks.key_argument:
                    available[spec.marks.key_argument] = key
                try:
                    value = answers.checked(spec, implementation.plugin, implementation.ask(**available))
                    if value is not None:
                        proposals.extend(resolve.proposals(spec, key, implementation, value))
                except (Exception, SystemExit) as error:
                    self._hook_failed(spec.name, key, implementation.plugin, error)
        outcome = resolve.resolve(spec, proposals, self.profile)
        if outcome.answers:
            self.answers[spec.name] = dict(sorted(outcome.answers.items()))
        for verdict in outcome.verdicts:
            self._row(spec.name, verdict.key, verdict.plugin, State(verdict.state), verdict.why)
        self.problems.extend(outcome.problems)
        proposing = {proposal.plugin for proposal in proposals} | {v.plugin for v in outcome.verdicts}
        for implementation in implementations:
            if implementation.plugin not in proposing and not self._has_row(spec.name, implementation.plugin):
                self._row(spec.name, "", implementation.plugin, State.INACTIVE, f"answered None: {spec.marks.none}")

    # -- rows

    def _implementations(self, registered: list[Registration], hook: str) -> tuple[Implementation, ...]:
        chosen = [i for r in registered for i in r.implementations if i.hook == hook]
        try:
            return ordered(chosen)
        except KunhookError as error:
            self.problems.append(str(error))
            return tuple(chosen)

    def _hook_failed(self, hook: str, key: str, plugin: str, error: BaseException) -> None:
        why = str(error) if isinstance(error, KunhookError) else describe(error)
        self._row(hook, key, plugin, State.FAILED, why)
        candidate = self.plugins[plugin]
        label = f"{hook}[{key}]" if key else hook
        self.problems.append(f"plugin {plugin!r} ({candidate.distribution} {candidate.version}), hook {label}: {why}")

    def _has_row(self, hook: str, plugin: str) -> bool:
        return any(row.hook == hook and row.plugin == plugin for row in self.rows)

    def _add_silent_plugins(self, registered: list[Registration]) -> None:
        with_rows = {row.plugin for row in self.rows}
        for registration_ in registered:
            name = registration_.candidate.name
            if name not in with_rows:
                self._row(ANY_HOOK, "", name, State.INACTIVE, "implements no hook")

    def _row(self, hook: str, key: str, plugin: str, state: State, why: str) -> None:
        candidate = self.plugins.get(plugin)
        self.rows.append(
            Row(
                hook=hook,
                key=key,
                plugin=plugin,
                distribution=candidate.distribution if candidate else PROFILE_PLUGIN,
                version=candidate.version if candidate else "",
                state=state,
                why=why,
                seam=seam_of(hook, self.sglang),
            )
        )
