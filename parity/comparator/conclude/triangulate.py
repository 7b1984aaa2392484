"""Which part is to blame, from the verdicts of several arms."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from parity.messages import Message, message
from parity.records import Verdict

_SPECULATING = ("mtp", "spec", "eagle", "draft", "ngram")
"""How names of variants with speculation on begin."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """What the pattern of verdicts points at."""

    name: Message
    why: Message


def triangulate(
    verdicts: Mapping[str, Verdict], baseline: str, against_baseline: Collection[str] = ()
) -> Suspect | None:
    """Name the suspect from the verdict of each candidate arm against one baseline (`backend/variant`).

    `against_baseline`: candidates that an arbiter supports where they diverge, and not the baseline. Where there are
    such, the verdicts of the others are against a faulty baseline and say nothing.

    With `base` and speculating arms on several backends: a backend whose `base` already diverges has a
    numerics problem of its own; a backend whose `base` passes while its speculation diverges has it in its
    speculation; speculation that diverges wherever it was tried is an upstream bug. Where one arm with speculation
    passes and another of the same backend diverges, its settings are suspected. None when nothing diverges or too
    little was run to tell.
    """
    if against_baseline:
        return Suspect(
            message("suspect.baseline", "the baseline {baseline}", baseline=baseline),
            message(
                "suspect.arbiter_supports",
                "where they differ, the arbiter supports {arms} and not the baseline",
                arms=sorted(against_baseline),
            ),
        )
    verdicts = {**verdicts, baseline: Verdict.PASS}
    diverged = {arm for arm, verdict in verdicts.items() if verdict is Verdict.DIVERGED}
    if not diverged:
        return None
    plain = {arm.partition("/")[0]: arm for arm in verdicts if arm.partition("/")[2] == "base"}
    broken = sorted(backend for backend, arm in plain.items() if arm in diverged)
    if broken:
        return Suspect(
            message("suspect.numerics", "numerics of {backends}", backends=broken),
            message(
                "suspect.diverges_already",
                "{backends} diverges from {baseline} without speculation already",
                backends=broken,
                baseline=baseline,
            ),
        )
    speculating: dict[str, bool] = {}
    for arm in verdicts:
        backend, _, variant = arm.partition("/")
        if _speculates(variant) and backend in plain:
            speculating[backend] = speculating.get(backend, False) or arm in diverged
    bad = sorted(backend for backend, faulty in speculating.items() if faulty)
    good = sorted(backend for backend, faulty in speculating.items() if not faulty)
    if not bad:
        return _setting(diverged, plain)
    if good:
        return Suspect(
            _speculation_on(bad),
            message(
                "suspect.clean_elsewhere",
                "without speculation {bad} agrees, and speculation on {good} is clean",
                bad=bad,
                good=good,
            ),
        )
    if len(bad) > 1:
        return Suspect(
            message("suspect.speculation_everywhere", "speculation everywhere"),
            message("suspect.all_diverge", "{backends} all diverge with speculation and agree without", backends=bad),
        )
    return _on_one_backend(bad[0], verdicts, diverged, is_baseline=plain[bad[0]] == baseline)


def _on_one_backend(backend: str, verdicts: Mapping[str, Verdict], diverged: set[str], *, is_baseline: bool) -> Suspect:
    """Where one backend alone ran with speculation."""
    arms = sorted(arm for arm in verdicts if arm.startswith(f"{backend}/") and _speculates(arm.partition("/")[2]))
    passed = [arm for arm in arms if verdicts[arm] is Verdict.PASS]
    if passed:
        return Suspect(
            _settings_of([arm for arm in arms if arm in diverged]),
            message("suspect.others_passed", "{arms} also ran with speculation, and passed", arms=passed),
        )
    if is_baseline:
        why = message(
            "suspect.baseline_without",
            "the baseline is {backend} without speculation; another backend's arms would tell whether the fault is "
            "upstream",
            backend=backend,
        )
    else:
        why = message(
            "suspect.agrees_without",
            "{backend} agrees without speculation; another backend's arms would tell whether the fault is upstream",
            backend=backend,
        )
    return Suspect(_speculation_on([backend]), why)


def _speculation_on(backends: list[str]) -> Message:
    return message("suspect.speculation", "speculation on {backends}", backends=backends)


def _settings_of(arms: list[str]) -> Message:
    return message("suspect.settings", "the settings of {arms}", arms=arms)


def _speculates(variant: str) -> bool:
    return variant.lower().startswith(_SPECULATING)


def _setting(diverged: set[str], plain: Mapping[str, str]) -> Suspect | None:
    """Variants without speculation that diverge where `base` does not: their own settings."""
    bad = sorted(arm for arm in diverged if arm.partition("/")[0] in plain and not _speculates(arm.partition("/")[2]))
    if not bad:
        return None
    why = message("suspect.base_agrees", "base agrees on the same backend; only {arms} diverges", arms=bad)
    return Suspect(_settings_of(bad), why)
