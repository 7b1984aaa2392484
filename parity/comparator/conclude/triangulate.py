"""Which part is to blame, from the verdicts of several arms, and from the sizes of their residuals where these do not
tell."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

from msgspec import Struct

from parity.comparator.conclude import sizes
from parity.comparator.stats import FirstFault, Numerics
from parity.messages import Message, message
from parity.records import Verdict

_SPECULATING = ("mtp", "spec", "eagle", "draft", "ngram")
"""How names of variants with speculation on begin."""


_NO_NUMBERS: Final[Mapping[str, Numerics]] = MappingProxyType({})
_NO_FAULTS: Final[Mapping[str, Sequence[FirstFault]]] = MappingProxyType({})

_NO_RECORDINGS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType({})

T = TypeVar("T")

ALIKE: Final = 0.5
"""Share of the faults of two arms, of the fewer, that are at one place with one token: from here on they go wrong
alike. Faults of their own share a place and a token by chance alone."""


class Suspect(Struct, frozen=True):
    """What the pattern of verdicts points at."""

    name: Message
    why: Message


def suspect_of_run(
    verdicts: Mapping[str, Verdict],
    baseline: str,
    against_baseline: Collection[str] = (),
    numerics: Mapping[str, Numerics] = _NO_NUMBERS,
    faults: Mapping[str, Sequence[FirstFault]] = _NO_FAULTS,
    recorded: Mapping[str, tuple[str, str]] = _NO_RECORDINGS,
) -> Suspect | None:
    """The same of all arms of a run. One verdict alone is no pattern, unless an arbiter accuses the baseline."""
    is_pattern = len(verdicts) > 1 or bool(against_baseline)
    return triangulate(verdicts, baseline, against_baseline, numerics, faults, recorded) if is_pattern else None


def _of_recordings(
    recorded: Mapping[str, tuple[str, str]], baseline: str, arms: Collection[str]
) -> dict[str, str] | None:
    """What the arms are called for a pattern of backends: recordings of several are no arms of one. None where these
    names do not tell them apart."""
    names = {arm: arm for arm in (baseline, *arms)}
    for arm, (of_baseline, of_arm) in recorded.items():
        names |= {baseline: of_baseline, arm: of_arm}
    if len({name.partition("/")[0] for name in names.values()}) == 1:
        return {arm: arm for arm in names}
    return names if len(set(names.values())) == len(names) else None


def triangulate(
    verdicts: Mapping[str, Verdict],
    baseline: str,
    against_baseline: Collection[str] = (),
    numerics: Mapping[str, Numerics] = _NO_NUMBERS,
    faults: Mapping[str, Sequence[FirstFault]] = _NO_FAULTS,
    recorded: Mapping[str, tuple[str, str]] = _NO_RECORDINGS,
) -> Suspect | None:
    """Name the suspect from the verdict of each candidate arm against one baseline (`backend/variant`).

    `against_baseline`: candidates that an arbiter supports where they diverge, and not the baseline. Where there are
    such, the verdicts of the others are against a faulty baseline and say nothing. numerics: those of the run as a
    whole, by candidate. faults: where completions go wrong, by candidate. recorded: as `Stats.recorded`, by candidate.

    An arm that is INCONCLUSIVE neither agrees nor diverges. Where arms of several backends go wrong alike, and no other
    backend agrees with the baseline, it may as well be the baseline. With `base` and speculating arms on several
    backends: a backend whose `base` already diverges is at fault by itself; a backend whose `base` passes while
    its speculation diverges has it in its speculation; speculation that diverges wherever it was tried is an
    upstream bug. Where one arm with speculation passes and another of the same backend diverges, its settings are
    suspected. Where a variant without speculation diverges beside one with it, no part is named. Where nothing
    diverges, or that does not tell, the same is asked of the residuals: numerics that rounding may explain are no
    fault, and still those of one backend, or of its speculation. None when too little was run to tell.
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
    names = _of_recordings(recorded, baseline, verdicts)
    if names is None:
        return None
    verdicts, numerics, faults = _named(verdicts, names), _named(numerics, names), _named(faults, names)
    baseline = names[baseline]
    alike = _alike(verdicts, baseline, faults)
    if alike:
        return Suspect(
            message(
                "suspect.baseline_or_common",
                "the baseline {baseline}, or what {arms} have in common",
                baseline=baseline,
                arms=alike,
            ),
            message(
                "suspect.alike", "these differ from it in the same completions, at the same places, by the same tokens"
            ),
        )
    verdicts = {**verdicts, baseline: Verdict.PASS}
    return _by_verdicts(verdicts, baseline, numerics) or _by_sizes(verdicts, numerics)


def _named(of: Mapping[str, T], names: Mapping[str, str]) -> dict[str, T]:
    return {names[arm]: value for arm, value in of.items() if arm in names}


def _alike(verdicts: Mapping[str, Verdict], baseline: str, faults: Mapping[str, Sequence[FirstFault]]) -> list[str]:
    """Arms of several backends that go wrong alike, where no arm without speculation on another backend agrees with the
    baseline: it is one against many then."""
    own = baseline.partition("/")[0]
    if any(
        verdict is Verdict.PASS and backend != own and not _speculates(variant)
        for (backend, _, variant), verdict in ((arm.partition("/"), verdict) for arm, verdict in verdicts.items())
    ):
        return []
    wrong = {arm: frozenset(faults.get(arm, ())) for arm, one in verdicts.items() if one is Verdict.DIVERGED}
    groups = (
        [other for other, theirs in wrong.items() if mine and len(mine & theirs) >= ALIKE * min(len(mine), len(theirs))]
        for mine in wrong.values()
    )
    most = max(groups, key=len, default=[])
    return sorted(most) if len({arm.partition("/")[0] for arm in most}) > 1 else []


def _by_sizes(verdicts: Mapping[str, Verdict], numerics: Mapping[str, Numerics]) -> Suspect | None:
    """None where a verdict accuses an arm whose numerics differ: they may be what its fault does."""
    if any(one.failed and verdicts.get(arm) is Verdict.DIVERGED for arm, one in numerics.items()):
        return None
    plain = {arm.partition("/")[0]: arm for arm in verdicts if arm.partition("/")[2] == "base"}
    speculating = {arm: arm.partition("/")[0] for arm in verdicts if _speculates(arm.partition("/")[2])}
    found = sizes.noisy({arm: one for arm, one in numerics.items() if arm in verdicts}, plain, speculating)
    if found is None:
        return None
    of_arms = message(
        "suspect.sizes", "logit noise in bf16 units against the same scores: {sizes}", sizes=list(found.sizes)
    )
    if not found.backends and not found.speculation:
        return Suspect(
            _settings_of(list(found.settings)),
            message(
                "suspect.noisier_by_settings",
                "no verdict accuses them, and their numerics differ, while those of {sound}, also with speculation, do "
                "not; {sizes}",
                sound=list(found.sound),
                sizes=of_arms,
            ),
        )
    if not found.backends:
        return Suspect(
            _speculation_on(list(found.speculation)),
            message(
                "suspect.noisier_with_speculation",
                "no verdict accuses it, and its numerics differ with speculation and not without{elsewhere}; {sizes}",
                elsewhere=message(
                    "suspect.as_elsewhere", ", while speculation on {good} differs in nothing", good=list(found.clean)
                )
                if found.clean
                else "",
                sizes=of_arms,
            ),
        )
    more = [*found.more, *found.speculation, *found.settings]
    return Suspect(
        message("suspect.numerics", "numerics of {backends}", backends=list(found.backends)),
        message(
            "suspect.noisier",
            "no verdict accuses it, and its numerics differ without speculation already{more}; {sizes}",
            more=message("suspect.more_with", ", and by more in {arms}", arms=more) if more else "",
            sizes=of_arms,
        ),
    )


def _by_verdicts(verdicts: Mapping[str, Verdict], baseline: str, numerics: Mapping[str, Numerics]) -> Suspect | None:
    """`verdicts`: the baseline's among them."""
    diverged = {arm for arm, verdict in verdicts.items() if verdict is Verdict.DIVERGED}
    if not diverged:
        return None
    plain = {arm.partition("/")[0]: arm for arm in verdicts if arm.partition("/")[2] == "base"}
    own = baseline.partition("/")[0]  # what parts its arms is their settings, were it only that the baseline speculates
    broken = sorted(backend for backend, arm in plain.items() if arm in diverged and backend != own)
    if broken:
        of_numbers = all((one := numerics.get(plain[backend])) is not None and one.failed for backend in broken)
        return Suspect(
            message("suspect.numerics", "numerics of {backends}", backends=broken)
            if of_numbers
            else message("suspect.engine", "the engine on {backends}", backends=broken),
            message(
                "suspect.diverges_already",
                "{backends} diverged from {baseline} without speculation already",
                backends=broken,
                baseline=baseline,
            ),
        )
    agreeing = {backend for backend, arm in plain.items() if verdicts[arm] is Verdict.PASS}
    speculating: dict[str, set[Verdict]] = {}
    for arm, verdict in verdicts.items():
        backend, _, variant = arm.partition("/")
        if _speculates(variant) and backend in agreeing:
            speculating.setdefault(backend, set()).add(verdict)
    bad = sorted(backend for backend, found in speculating.items() if Verdict.DIVERGED in found)
    good = sorted(backend for backend, found in speculating.items() if found == {Verdict.PASS})
    if not bad:
        return _setting(diverged, agreeing)
    if any(arm.partition("/")[0] in bad and not _speculates(arm.partition("/")[2]) for arm in diverged):
        return None  # it is not speculation alone that parts them from the baseline
    if good:
        return Suspect(
            _speculation_on(bad),
            message(
                "suspect.clean_elsewhere",
                "without speculation {bad} agreed, and speculation on {good} is clean",
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
    elsewhere = sorted(arm for arm in verdicts if _speculates(arm.partition("/")[2]) and arm not in arms)
    if elsewhere:
        why = message(
            "suspect.others_open",
            "{backend} agrees without speculation; whether the backends of {arms} do is open",
            backend=backend,
            arms=elsewhere,
        )
    elif is_baseline:
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


def _setting(diverged: set[str], agreeing: Collection[str]) -> Suspect | None:
    """Variants without speculation that diverge where `base` does not: their own settings. None where others diverge
    besides."""
    bad = sorted(
        arm for arm in diverged if arm.partition("/")[0] in agreeing and not _speculates(arm.partition("/")[2])
    )
    if diverged - set(bad):
        return None
    why = message("suspect.base_agrees", "base agrees on the same backend; only {arms} diverged", arms=bad)
    return Suspect(_settings_of(bad), why)
