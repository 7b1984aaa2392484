"""Positive controls: was the fault that was planted on purpose found where it was planted?

What was planted stands in the arm's engine log, a line per row (docs/fault-lab.md), on any host.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from parity.comparator import Comparison
from parity.explain.located import Locating
from parity.messages import Message, message
from parity.records import RUN, Capture, Kind, Verdict

MARK = b"parity-fault "
HARMLESS = frozenset({"none", "logits_noise"})
"""Controls that must *not* be found: the engine is wrapped, or moved by rounding alone."""
OF_DRAFTER = frozenset({"drafter_off", "drafter_input_off"})
"""Controls that no token may show, for what a drafter proposes is verified; its sketches do."""


@dataclass(frozen=True, slots=True)
class Planted:
    """What the engine's log says: whether the plugin was there, and the prompts' digests by planted rows."""

    installed: bool
    prompts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Control:
    """What became of one positive control. `as_expected`: a fault was caught, a harmless one was not reported."""

    arm: str
    fault: str
    as_expected: bool
    sentence: Message


def read_planted(log: Path) -> Planted:
    """Read the engine log of a control arm; a log that is not there planted nothing."""
    installed = False
    prompts: Counter[str] = Counter()
    if log.exists():
        with log.open("rb") as lines:
            for line in lines:
                at = line.find(MARK)  # engines put prefixes before the lines of their processes
                if at < 0:
                    continue
                try:
                    record = orjson.loads(line[at + len(MARK) :])
                    kind, prompt = record["record"], record.get("prompt")
                except (ValueError, TypeError, KeyError, AttributeError):
                    continue  # two processes wrote at once: one line less to count
                installed = installed or kind == "installed"
                if kind == "planted":
                    prompts[str(prompt)] += 1
    return Planted(installed, prompts)


def prompt_digest(token_ids: Iterable[int]) -> str:
    """As in the log: BLAKE2b of the ids, 8 bytes (`parity_faults.catalogue.prompt_key`)."""
    text = ",".join(str(int(token)) for token in token_ids)
    return hashlib.blake2b(text.encode("ascii"), digest_size=8).hexdigest()


def judge(
    arm: str,
    fault: str,
    planted: Planted,
    capture: Capture,
    comparison: Comparison,
    drafter: Locating | None = None,
) -> Control:
    """Set "planted" against "found", request by request (the log knows prompts, not rounds).

    `drafter`: what the sketches of the arm's drafter say, where it was sketched."""
    corrupt = {finding.key for finding in comparison.corrupt}
    name = fault.split(":", 1)[0]
    clean = comparison.verdict is not Verdict.DIVERGED
    if name in HARMLESS or (name in OF_DRAFTER and (drafter is None or not clean)):
        return _harmless(arm, fault, clean, len(corrupt))
    digests = {one.key: prompt_digest(one.prompt_token_ids.tolist()) for one in capture}
    hit = {key for key, digest in digests.items() if digest in planted.prompts}
    # Others are of the same engine's prefills, which the drafter's sketches are set against.
    steps = sum(planted.prompts[digest] for digest in {digests[key] for key in hit})
    where = _where(steps, len({key.request for key in hit}))
    kinds = [(finding.key, str(finding.kind)) for finding in comparison.corrupt]
    if name in OF_DRAFTER and drafter is not None:
        kinds = [(one.key, one.module) for one in drafter.located]
    caught = {key for key, _ in kinds} & hit
    if caught:
        said = message(
            "pipeline.control_caught",
            "positive control {fault}: caught in {arm}: {where}, found in {found} ({kinds})",
            fault=fault,
            arm=arm,
            where=where,
            found=len(caught),
            kinds=sorted({kind for key, kind in kinds if key in caught}),
        )
        return Control(arm, fault, True, said)
    whole = [one.kind for one in comparison.corrupt if one.request == RUN]
    of_the_run = {str(kind) for kind in whole if kind is not Kind.INPUT_MISMATCH}
    if hit and of_the_run:
        said = message(
            "pipeline.control_caught_run",
            "positive control {fault}: caught in {arm}: {where}, found in the run as a whole ({kinds})",
            fault=fault,
            arm=arm,
            where=where,
            kinds=sorted(of_the_run),
        )
        return Control(arm, fault, True, said)
    if hit:
        why = message(
            "pipeline.control_missed", "{where} and found in none: this run would have missed that fault", where=where
        )
    elif planted.installed:
        why = message(
            "pipeline.control_unfit",
            "it never came to be planted: no step was fit for it, or none that was came up at its rate, so nothing was "
            "tested",
        )
    else:
        why = message(
            "pipeline.control_absent",
            "the plugin never said that it was there, so nothing was tested (the arm's log says more)",
        )
    said = message(
        "pipeline.control_not_caught",
        "positive control {fault}: NOT caught in {arm}: {why}",
        fault=fault,
        arm=arm,
        why=why,
    )
    return Control(arm, fault, False, said)


def _harmless(arm: str, fault: str, clean: bool, corrupt: int) -> Control:
    if clean:
        said = message("pipeline.control_clean", "not reported, as it should be")
    else:
        said = message("pipeline.control_reported", "REPORTED in {completions} completions", completions=corrupt)
    sentence = message("pipeline.control", "control {fault}: {said} ({arm})", fault=fault, said=said, arm=arm)
    return Control(arm, fault, clean, sentence)


def _where(steps: int, requests: int) -> Message:
    return message(
        "pipeline.planted_in",
        "planted in {count} step of {requests} requests",
        plural="planted in {count} steps of {requests} requests",
        count=steps,
        requests=requests,
    )
