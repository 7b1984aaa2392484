"""Which part is to blame, from the verdicts of several arms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parity.records import Verdict

_SPECULATING = ("mtp", "spec", "eagle", "draft", "ngram")
"""How names of variants with speculation on begin."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """What the pattern of verdicts points at."""

    name: str
    why: str


def triangulate(verdicts: Mapping[str, Verdict], baseline: str) -> Suspect | None:
    """Name the suspect from the verdict of each candidate arm against one baseline (`backend/variant`).

    With `base` and speculating arms on several backends: a backend whose `base` already diverges has a
    numerics problem of its own; a backend whose `base` passes while its speculation diverges has it in its
    speculation; speculation that diverges wherever it was tried is an upstream bug. Where one arm with speculation
    passes and another of the same backend diverges, its settings are suspected. None when nothing diverges or too
    little was run to tell.
    """
    verdicts = {**verdicts, baseline: Verdict.PASS}
    diverged = {arm for arm, verdict in verdicts.items() if verdict is Verdict.DIVERGED}
    if not diverged:
        return None
    plain = {arm.partition("/")[0]: arm for arm in verdicts if arm.partition("/")[2] == "base"}
    broken = sorted(backend for backend, arm in plain.items() if arm in diverged)
    if broken:
        names = ", ".join(broken)
        return Suspect(f"numerics of {names}", f"{names} diverges from {baseline} without speculation already")
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
            f"speculation on {', '.join(bad)}",
            f"without speculation {', '.join(bad)} agrees, and speculation on {', '.join(good)} is clean",
        )
    if len(bad) > 1:
        return Suspect("speculation everywhere", f"{', '.join(bad)} all diverge with speculation and agree without")
    speculation = sorted(arm for arm in verdicts if arm.startswith(f"{bad[0]}/") and _speculates(arm.partition("/")[2]))
    passed = ", ".join(arm for arm in speculation if verdicts[arm] is Verdict.PASS)
    if passed:
        names = ", ".join(arm for arm in speculation if arm in diverged)
        return Suspect(f"the settings of {names}", f"{passed} also ran with speculation, and passed")
    if plain[bad[0]] == baseline:
        return Suspect(
            f"speculation on {bad[0]}",
            f"{baseline} is that without speculation; another backend's arms would tell whether the fault is upstream",
        )
    return Suspect(
        f"speculation on {bad[0]}",
        f"{bad[0]} agrees without speculation; another backend's arms would tell whether the fault is upstream",
    )


def _speculates(variant: str) -> bool:
    return variant.lower().startswith(_SPECULATING)


def _setting(diverged: set[str], plain: Mapping[str, str]) -> Suspect | None:
    """Variants without speculation that diverge where `base` does not: their own settings."""
    bad = sorted(arm for arm in diverged if arm.partition("/")[0] in plain and not _speculates(arm.partition("/")[2]))
    if not bad:
        return None
    names = ", ".join(bad)
    return Suspect(f"the settings of {names}", f"base agrees on the same backend; only {names} diverges")
