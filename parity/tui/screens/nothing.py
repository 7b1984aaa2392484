"""What a run says that has no findings to show: agreement is claimed of a PASS in which nothing differs, and of no
other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from parity.messages import Message, joined, message
from parity.records import Verdict
from parity.store import ArmRow, RunRow, RunStatus
from parity.store.browse import Browser
from parity.tui.names import class_counts, status_name

IDENTICAL = "identical"


def classes_of(store: Browser, run: RunRow) -> Mapping[str, int]:
    """Completions of the candidate arms by class; "missing" are those that the baseline has and an arm has not."""
    arms = store.arms(run.id)
    expected = sum(sum(store.count_classes(run.id, arm.name).values()) for arm in arms if arm.is_baseline)
    found: Counter[str] = Counter()
    for arm in arms:
        if not arm.is_baseline:
            counts = store.count_classes(run.id, arm.name)
            found.update(counts)
            found["missing"] += max(0, expected - sum(counts.values()))
    return {cls: count for cls, count in found.items() if count}


def nothing_found(run: RunRow, status: str, arms: Sequence[ArmRow], classes: Mapping[str, int]) -> Message:
    """`status` as `actual_status` has it."""
    head = _head(run, status, classes)
    lines: list[Message | str] = [head, ""]
    if status != RunStatus.FINISHED:
        lines += [
            message("tui.nothing.arm", "{arm}: {status}", arm=arm.name, status=status_name(arm.status)) for arm in arms
        ]
    lines += [*run.reasons, *([run.message] if run.message else [])]
    if classes:
        lines += ["", class_counts(classes), message("tui.nothing.list", "C lists them, Enter there opens one.")]
    return joined(lines)


def _head(run: RunRow, status: str, classes: Mapping[str, int]) -> Message:
    differ = sum(count for cls, count in classes.items() if cls != IDENTICAL)
    if status == RunStatus.RUNNING:
        return message("tui.nothing.running", "Still running: nothing was compared yet.")
    if status == RunStatus.INTERRUPTED:
        return message("tui.nothing.interrupted", "Interrupted before anything was compared: nothing is known yet.")
    if status == RunStatus.FAILED or run.verdict == "ERROR":
        return message("tui.nothing.failed", "The run failed: nothing was compared.")
    if run.verdict == Verdict.INCONCLUSIVE:
        return message("tui.nothing.inconclusive", "No verdict: what there is does not tell a fault from noise.")
    if run.verdict != Verdict.PASS:
        return message("tui.nothing.other", "No findings are stored for this run.")
    if differ:
        return message("tui.nothing.differ", "No findings, though not every completion is identical.")
    return message("tui.agree", "No findings: the arms agree token by token.")
