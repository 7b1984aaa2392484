"""What a person may conclude from a run and do next, as messages."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Final

from parity.capture.steps import steps_path
from parity.comparator.population.power import requests_needed
from parity.files import is_file
from parity.messages import Message, message
from parity.records.engine_settings import draft_tokens
from parity.report import facts
from parity.view import RunView, next_commands
from parity.view.at_hand import REPLAY, SERVER, Here
from parity.view.missing import ways_on

MOST: Final = 0.5
"""Rates above this are not said as one in so many."""


def missed(view: RunView) -> Iterator[Message]:
    """The bound on what the run could not see. A PASS has it among its reasons."""
    if view.run.verdict == "PASS":
        return
    for arm, bound in view.missed.items():
        if MOST < bound < 1:
            yield message(
                "advice.missed_most",
                "{arm}: a fault that hits fewer than {bound} of all completions could have been missed, at 95 % "
                "confidence. To see one in {wanted} takes {needed} completions (`parity power`).",
                arm=arm,
                bound=f"{bound:.2g}",
                wanted=f"{10 / bound:,.0f}",
                needed=f"{requests_needed(bound / 10):,}",
            )
        elif 0 < bound < 1:
            yield message(
                "advice.missed",
                "{arm}: a fault that hits fewer than {bound} of all completions (1 in {one}) could have been missed, "
                "at 95 % confidence. To see one in {wanted} takes {needed} completions (`parity power`).",
                arm=arm,
                bound=f"{bound:.2g}",
                one=f"{1 / bound:,.0f}",
                wanted=f"{10 / bound:,.0f}",
                needed=f"{requests_needed(bound / 10):,}",
            )
        elif bound >= 1:
            yield message(
                "advice.too_few", "{arm}: too few completions were judged to exclude any rate of faults.", arm=arm
            )


def next_steps(view: RunView, *, brief: bool = False) -> list[Message]:
    """What a person would do now, as commands where there are some. `brief`: a PASS was shown without its figures."""
    run = view.run
    if run.status in ("running", "interrupted", "failed") and run.id:
        return ways_on(view)
    steps: list[Message] = []
    if run.verdict == "PASS":
        steps += _passed(view, brief=brief)
    elif run.verdict == "DIVERGED":
        steps += _diverged(view)
    elif run.verdict == "INCONCLUSIVE" and not next_commands(view):
        steps.append(
            message(
                "advice.inconclusive",
                "the verdict line says what kept the run from a conclusion; remove that and run again",
            )
        )
    if run.directory and not brief:
        steps.append(message("advice.files", "captures, scores and engine logs: {directory}", directory=run.directory))
    return steps


def _passed(view: RunView, *, brief: bool) -> Iterator[Message]:
    judged = min((arm.completions for arm in view.arms if arm.name in view.missed), default=0)
    bound = max(view.missed.values(), default=1.0)
    recorded = any(arm.backend == REPLAY for arm in view.arms)
    needed = requests_needed(bound / 10) if judged and 0 < bound < 1 else 0
    if needed and recorded:
        yield message(
            "advice.more_recorded",
            "to see a fault in 1 of {wanted} completions, judge {needed}: a recording of {rounds} rounds, made with "
            "`--rounds {rounds}` (see `parity power`)",
            wanted=f"{10 / bound:,.0f}",
            needed=f"{needed:,}",
            rounds=ceil(needed * view.run.rounds / judged),
        )
    elif needed:
        yield message(
            "advice.judge_more",
            "to see a fault in 1 of {wanted} completions, judge {needed}: `{command}` (see `parity power`)",
            wanted=f"{10 / bound:,.0f}",
            needed=f"{needed:,}",
            command=_in_rounds(view, ceil(needed * view.run.rounds / judged)),
        )
    else:
        yield message(
            "advice.run_more",
            "to exclude rarer faults, run more: `{command}`",
            command=_in_rounds(view, 10 * view.run.rounds),
        )
    if brief:
        show = f"`parity runs show {view.run.named}`" if view.run.id else "`--details`"
        yield message("advice.details", "all figures, logprobs, files: {show}", show=show)
    elif view.total_findings:
        yield _all_near_ties(view)


def _diverged(view: RunView) -> Iterator[Message]:
    run = view.run
    if view.baseline_is_at_fault:
        if run.id:
            yield message("advice.report", "the bug report: `parity report {run}`", run=run.named)
        return
    if run.id:
        yield message("advice.triage", "go through the findings: `parity tui {run}`", run=run.named)
    yield _all_findings(view)
    if run.id and any(arm.capture and is_file(steps_path(Path(arm.capture))) for arm in view.suspected):
        yield message(
            "advice.why", "under which conditions it happens, and what to try: `parity why {run}`", run=run.named
        )
    if run.id and view.located:
        yield message("advice.locate", "the first module that is wrong, around its token: `parity locate {run}`",
                      run=run.named)  # fmt: skip
    if facts.asked_differently(view):
        yield message(
            "advice.ask_the_same",
            "the arms were asked different things: ask both the same, from one plan (`parity run --plan FILE`), and "
            "compare again",
        )
    elif all(arm.backend == REPLAY for arm in view.arms):
        yield message(
            "advice.recordings",
            "recordings answer nothing new; with an engine on this machine: `parity run --backends cpu`",
        )
    else:
        if any(arm.backend == REPLAY for arm in view.arms):  # which has its rounds, and no more
            yield message("advice.again_recorded", "see whether it comes back, and how often: the same command again")
        else:
            yield message(
                "advice.again_rounds",
                "see whether it comes back, and how often: `{command}`",
                command=_in_rounds(view, 5 * run.rounds),
            )
        # Of captures from elsewhere there is no plan to run again, and a recording answers nothing new.
        if run.id and run.source == "run" and view.baseline.backend != REPLAY:
            yield message(
                "advice.reduce", "the smallest plan that still fails: `parity reduce --run {run}`", run=run.named
            )
        if all(arm.backend == SERVER for arm in view.suspected):
            pass  # how many rows it takes is not ours to say
        elif any((draft_tokens(arm.settings) or 0) > 1 for arm in view.suspected):
            yield message(
                "advice.narrow", "narrow it down by hand: fewer draft tokens (`-k 1`), one row (`--max-num-seqs 1`)"
            )
        else:
            yield message("advice.narrow_rows", "narrow it down by hand: one row (`--max-num-seqs 1`)")
    if run.id:
        yield message("advice.report", "the bug report: `parity report {run}`", run=run.named)


def _in_rounds(view: RunView, rounds: int) -> str:
    """The command that runs the plan again in so many rounds; of captures from elsewhere nobody knows its beginning."""
    words = Here(view).on_plan("--rounds", str(rounds))
    return f"parity run … --rounds {rounds}" if words is None else shlex.join(["parity", *words])


def _all_near_ties(view: RunView) -> Message:
    if view.run.id:
        return message(
            "advice.near_ties", "all near-ties with their logprobs: `parity runs show {run} --json`", run=view.run.named
        )
    return message("advice.near_ties_unsaved", "all near-ties with their logprobs: the same command with `--json`")


def _all_findings(view: RunView) -> Message:
    if view.run.id:
        return message(
            "advice.findings",
            "all findings with their evidence: `parity runs show {run} --json`",
            run=view.run.named,
        )
    return message("advice.findings_unsaved", "all findings with their evidence: the same command with `--json`")
