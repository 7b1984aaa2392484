"""What can be said about a case, in three parts: what was measured, what is inferred, what nobody looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from parity.comparator.population.power import requests_needed
from parity.messages import Message, Parameter, message
from parity.records import Kind
from parity.records.engine_settings import draft_tokens, engine_settings, speculative_settings
from parity.records.evidence import LocatedEvidence, ViolationEvidence
from parity.records.kinds import Family, KindRow
from parity.report.conditions import shared_conditions
from parity.report.escape import public, without_paths
from parity.report.prose import Code
from parity.report.texts import Texts
from parity.report.texts import sentence as say
from parity.text import clip, visible
from parity.view import ArmView, FindingView, RunView
from parity.view.msprobe import msprobe
from parity.view.strip import strip_lines
from parity.view.why_said import said

READ_OFF_TOKENS = frozenset({Family.TOKENS, Family.ENDS})
"""Families whose kinds are names for what tokens look like."""
BY_GAPS = READ_OFF_TOKENS | {Family.NOISE, Family.RULES, Family.RUN, Family.ENGINE}
"""Families whose reader has to know when a token counts as explained by rounding."""
_THE_RUN = KindRow(name="", family=Family.RUN, title=message("report.the_run", "the run as a whole"))
TITLE = 240
"""Characters of a title; GitHub takes 256."""


def version_line(arm: ArmView) -> str:
    """ "vllm 0.32.0, torch 2.13.0+cpu": the packages that decide numerics, as far as they are known."""
    wanted = ("vllm", "vllm_ascend", "vllm-ascend", "torch", "torch_npu", "torch-npu", "transformers", "triton")
    return ", ".join(f"{name} {arm.versions[name]}" for name in wanted if name in arm.versions)


def engine_version(view: RunView) -> str:
    """The engine of the accused arm, for the title."""
    arms = view.suspected or list(view.arms)
    names = ("vllm_ascend", "vllm-ascend", "vllm")
    found = [f"{name.replace('_', '-')} {arm.versions[name]}" for arm in arms for name in names if name in arm.versions]
    return found[0] if found else "vLLM" if arms[0].is_vllm else version_line(arms[0]) or arms[0].backend


def title(view: RunView, texts: Texts) -> str:
    """One plain line, without Markdown."""
    chosen, arms = view.chosen, view.suspected or view.candidates or list(view.arms)
    arm = next((one for one in arms if chosen is not None and one.name == chosen.arm), arms[0])
    common: dict[str, Parameter] = {
        "setting": " and ".join(_setting(one) for one in arms),
        "model": view.run.model,
        "version": engine_version(view),
        "completions": arm.total,
        "near": arm.count("near_tie"),
        "corrupt": arm.faulty,
    }
    if (lost := failed(view)) is not None:
        text = texts("title.failed", why=texts.said(lost[1]), **common)
    elif (why := view.open_reason) is not None:
        if view.baseline_is_at_fault:
            rejected = max(one.stats["arbiter"]["candidate"] for one in view.against_baseline)
            text = texts("title.baseline", arbiter=view.run.arbiter, count=rejected, **common)
        else:
            text = texts("title.open", why=texts.said(why), **common)
    elif chosen is None or not chosen.is_corrupt:
        text = texts("title.benign" if view.run.greedy else "title.benign.drawn", **common)
    elif not view.asked_for_finding and not view.run.greedy and not common["corrupt"]:
        text = texts("title.samples", **common)
    elif view.asked_for_finding or not common["corrupt"]:
        kinds = texts.kind(chosen.kind)
        name = "title.finding.whole" if chosen.position is None else "title.finding"
        text = texts(name, kinds=kinds, position=chosen.position, **common)
    else:
        name = "title.fault" if len(arm.corrupt) == 1 else "title.faults"
        text = texts(name, kinds=texts.kind(chosen.kind), **common)
    return clip(without_paths(visible(text)), TITLE)


def _setting(arm: ArmView) -> str:
    method = speculative_settings(arm.settings).get("method")
    return f"{arm.name} ({method} k={draft_tokens(arm.settings)})" if method else arm.name


def claims(view: RunView, arm: ArmView, *, drawn: bool) -> list[Message]:
    """What is claimed of an arm: a sentence for all kinds of which the same is said, the most frequent first."""
    of_run = Counter(one.kind for one in view.corrupt if one.arm == arm.name and one.of_run)
    counts: dict[str, tuple[KindRow, int]] = {}
    found = Counter(arm.first_faults) + Counter(arm.of_run)
    for name, count in found.items():
        own = Kind(name).row
        whole = own if own.family is Family.RUN and own.claim is not None else _THE_RUN
        for row, completions in ((own, count - of_run[name]), (whole, of_run[name])):
            claim = row.claimed(0, 0, drawn=drawn).id
            if completions > 0:
                counts[claim] = row, completions + (counts[claim][1] if claim in counts else 0)
    ordered = sorted(counts.values(), key=lambda one: -one[1])
    return [row.claimed(count, arm.total, drawn=drawn) for row, count in ordered]


def asked_differently(view: RunView) -> bool:
    """Whether all that was found is that the arms were asked different things."""
    return bool(view.corrupt) and all(Kind(one.kind).row.family is Family.INPUT for one in view.corrupt)


def asked_otherwise(view: RunView) -> bool:
    """Whether it was found of any completion that the arms were asked different things."""
    return any(Kind(one.kind).row.family is Family.INPUT for one in view.corrupt)


def rests_on_gaps(arm: ArmView) -> bool:
    """Whether anything in the arm was decided by what the reference thinks of a token."""
    return not arm.corrupt or any(Kind(kind).row.family in BY_GAPS for kind in arm.corrupt)


def kinds_of(arm: ArmView) -> list[Message]:
    """ "tokens lost (3)", "garbled text (1)": completions that have them; and what the run as a whole has."""
    counts = {one.kind: one.completions for one in arm.kinds} or (arm.corrupt if not arm.of_run else {})
    found = [say("kind.count", kind=Kind(kind).row.title, count=count) for kind, count in counts.items()]
    return found + [say("kind.of_run", kind=Kind(kind).row.title) for kind in arm.of_run]


def failures(view: RunView) -> list[tuple[str, Message]]:
    """(arm, or the run, and why it failed)."""
    found = [(arm.name, arm.message) for arm in view.arms if arm.message is not None]
    said = {str(message) for _, message in found}
    if view.run.message is not None and str(view.run.message) not in said and view.run.verdict in (None, "ERROR"):
        found.append((view.run.id, view.run.message))
    return found


def planted(view: RunView) -> Iterator[Message]:
    """That it is an example, once for each fault that was planted in what is accused, or in the baseline."""
    arms: dict[str, list[str]] = {}
    for one in view.arms:
        if one.planted and (one.is_baseline or one in view.suspected):
            arms.setdefault(one.planted, []).append(one.name)
    for fault, names in arms.items():
        yield say("lead.planted", fault=Code(fault), arms=list(map(Code, names)))


def role(arm: ArmView, texts: Texts) -> str:
    """What an arm is there for, where it is not judged."""
    return texts("baseline") if arm.is_baseline else texts("control") if arm.is_control else ""


def failed(view: RunView) -> tuple[list[str], Message] | None:
    """The arms, or the run, that failed, and the first why; None where something was found all the same."""
    found = failures(view)
    if not found or view.run.verdict not in (None, "ERROR") or any(arm.corrupt for arm in view.candidates):
        return None
    why = next(iter(view.run.reasons), found[0][1])
    said = why.parameters.get("said")  # without the end of a log, which stands in lines of its own
    return [name for name, _ in found], said if isinstance(said, Message) and "\n" in str(why) else why


def cells(arm: ArmView) -> list[str]:
    """What stands beside an arm's name in a table: completions, identical, near-ties, corrupt, shortest, acceptance,
    tokens per second."""
    counts = (arm.count("identical"), arm.count("near_tie"), arm.faulty) if arm.compared else ("-", "-", "-")
    return [
        str(arm.completions),
        *map(str, counts),
        str(min(arm.lengths, default="-")),
        "-" if arm.acceptance_rate is None else f"{arm.acceptance_rate:.1%}",
        f"{arm.tokens_per_second:,.1f}" if arm.tokens_per_second else "-",
    ]


def sampling_in_words(view: RunView) -> str:
    """ "greedy, max_tokens 32": what was asked for, without what was left at its default."""
    temperature = view.run.sampling.get("temperature", 0)
    parts = ["greedy" if not temperature else f"temperature {temperature}"]
    parts += [f"{name} {view.run.sampling[name]}" for name in ("max_tokens", "n") if view.run.sampling.get(name)]
    return ", ".join(parts)


def measured(view: RunView) -> Iterator[Message]:
    baseline = Code(view.run.baseline)
    for arm in [*view.candidates, *view.controls]:
        if not arm.compared:
            yield say("measured.not_compared", arm=Code(arm.name), completions=arm.completions)
            continue
        yield say(
            "measured.counts" if view.run.greedy else "measured.counts.drawn",
            arm=Code(arm.name),
            completions=arm.completions,
            identical=arm.count("identical"),
            baseline=baseline,
            near=arm.count("near_tie"),
            corrupt=arm.faulty,
            kinds=say("measured.kinds", kinds=kinds_of(arm)) if arm.corrupt else "",
        )
    chosen = None if view.baseline_is_at_fault else view.chosen
    if chosen is not None and chosen.position is not None and chosen.gap is not None:
        yield say(
            "measured.token",
            request=Code(chosen.request),
            position=chosen.position,
            arm=Code(chosen.arm),
            token=Code(view.text.token(chosen.token)) if chosen.token is not None else "-",
            gap=f"{chosen.gap:.2f}",
        )
    for arm in [*view.candidates, *view.controls]:
        figures = arm.figures
        if figures.drafted and arm.acceptance_rate is not None:
            yield say(
                "measured.accept",
                arm=Code(arm.name),
                accepted=figures.accepted,
                drafted=figures.drafted,
                rate=f"{arm.acceptance_rate:.0%}",
            )
    yield from shared_conditions(view)
    rounds = view.run.rounds
    for arm in view.suspected if rounds > 1 and view.corrupt and not view.asked_for_finding else []:
        seen = {one.key.round for one in view.corrupt if one.arm == arm.name and not one.of_run}
        yield say("measured.again", arm=Code(arm.name), seen=len(seen), rounds=rounds)
    floors = [arm.figures for arm in view.candidates if arm.figures.floor_gap is not None]
    for floor in floors[:1]:
        yield say(
            "measured.floor.rejected" if floor.floor_rejected else "measured.floor",
            largest=floor.floor_gap,
            tokens=(floor.floor_tokens or 0) - floor.floor_rejected,
            rejected=floor.floor_rejected,
        )


VIOLATIONS = 8
"""Violations of the engine's bookkeeping, and located faults, that a report lists."""


def inside(view: RunView) -> Iterator[Message]:
    """From steps and sketches: under which conditions the faults happen, what broke where, and what to try next."""
    for one in view.why:
        yield from said(one, shown=3 if one.associated.sure else 1)
    for finding in view.violations[:VIOLATIONS]:
        yield violation(finding)
    if len(view.violations) > VIOLATIONS:
        yield say("inside.more", more=len(view.violations) - VIOLATIONS)
    for finding in view.located[:VIOLATIONS]:
        yield located(finding)
    if len(view.located) > VIOLATIONS:
        yield say("inside.more_located", more=len(view.located) - VIOLATIONS)
    if (dump := msprobe(map(of_msprobe, view.located))) is not None:
        yield dump


def of_msprobe(finding: FindingView) -> tuple[str, str, int]:
    one = finding.evidence
    assert isinstance(one, LocatedEvidence)
    return one.module, one.module_type, one.step


def located(finding: FindingView) -> Message:
    """Module, token, step and row, and how far it is off."""
    return say(
        "inside.located",
        arm=Code(finding.arm),
        request=Code(str(finding.key)),
        position=finding.position,
        why=finding.why,
    )


def strips(view: RunView) -> Iterator[str]:
    """Modules and tokens around located faults, as text; the chosen finding's where it has one, else the first's."""
    chosen = [one for one in view.located if one is view.chosen] or view.located[:1]
    for finding in chosen:
        assert isinstance(finding.evidence, LocatedEvidence)
        if lines := strip_lines(finding.evidence):
            yield "\n".join(lines)


def left_no_trace(view: RunView, finding: FindingView) -> bool:
    """Are the tokens of a completion, in which something is wrong inside the engine, the baseline's?"""
    return view.run.greedy and finding.baseline is not None and finding.first_divergence is None


def violation(finding: FindingView) -> Message:
    """Step, row, request, both numbers, and who had the row before."""
    one = finding.evidence
    assert isinstance(one, ViolationEvidence)
    return say(
        "inside.violation",
        arm=Code(finding.arm),
        request=Code(str(finding.key)),
        position=finding.position,
        why=one.why,
        before=say("inside.before", request=Code(one.row_before)) if one.row_before else "",
        shared=say("inside.shared", request=Code(one.shared_with)) if one.shared_with else "",
        again=say("inside.again", more=one.row_steps - 1) if one.row_steps > 1 else "",
    )


def inferred(view: RunView) -> Iterator[Message]:
    chosen = view.chosen
    if chosen is not None and chosen.is_corrupt and Kind(chosen.kind).row.family in READ_OFF_TOKENS:
        yield say("inferred.kind", kind=Code(chosen.kind), why=chosen.why)
    for arm in () if asked_differently(view) else view.suspected:  # of what was asked there is no rate
        if arm.faulty and arm.corrupt_interval is not None:
            low, high = arm.corrupt_interval
            yield say("inferred.rate", low=f"{low:.2%}", high=f"{high:.2%}")
    if view.suspect is not None and not asked_differently(view):
        yield say("inferred.suspect", name=view.suspect.name, why=view.suspect.why)
    if not names_a_cause(view):
        yield say("inferred.none")


def names_a_cause(view: RunView) -> bool:
    """Whether recorded steps or sketches say where it went wrong."""
    return bool(view.violations or view.located or any(one.telling for one in view.why))


def unchecked(view: RunView) -> Iterator[Message]:
    backends = sorted({arm.backend for arm in view.arms})
    yield say("unchecked.backends", backends=[Code(one) for one in backends])
    yield from view.emulated
    versions = sorted({version for one in view.siblings for version in one.versions.values()} - {"unknown"})
    if versions:
        yield say("unchecked.versions", versions="; ".join(versions))
    if "transformers" not in (*backends, view.run.arbiter):
        yield say("unchecked.transformers")
    if not view.against_baseline:
        yield say("unchecked.reference")
    for name in (row.key for row in engine_settings() if row.decides):
        values = dict.fromkeys(_value(arm.settings.get(name)) for arm in view.arms)
        values.pop("None", None)
        if values:
            yield say("unchecked.setting", name=Code(name), values=[Code(value) for value in values])
    if view.run.greedy:
        yield say("unchecked.sampling")
    for arm in view.candidates:
        bound = arm.figures.not_excluded
        if bound is not None and 0 < bound < 1:
            yield say(
                "unchecked.rarer", arm=Code(arm.name), bound=f"{bound:.2g}", needed=f"{requests_needed(bound / 10):,}"
            )
    if view.chosen is not None and view.chosen.is_corrupt and len(view.requests) > 1:
        yield say("unchecked.reduced")


def controls(view: RunView) -> Iterator[Message]:
    for arm in view.arms:
        if arm.is_baseline:
            yield say("control.baseline", arm=Code(arm.name), completions=arm.completions)
        elif arm.is_control and arm not in view.suspected:
            name = "control.caught" if arm.corrupt else "control.drafter" if arm.drafter_wrong else "control.missed"
            note = arm.drafter_wrong or ""
            yield say(name, arm=Code(arm.name), corrupt=arm.faulty, completions=arm.total, note=note)
        elif arm.is_clean:
            yield say(
                "control.clean" if view.run.greedy else "control.clean.drawn",
                arm=Code(arm.name),
                completions=arm.completions,
                identical=arm.count("identical"),
                near=arm.count("near_tie"),
            )
    if not any(arm.is_clean for arm in view.arms) and view.corrupt:
        yield say("control.none")


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key}={public(item)}" for key, item in value.items())
    return str(public(value))
