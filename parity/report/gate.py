"""A policy applied: to a stored run, or to a comparison that is not in the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from parity.comparator import Comparison
from parity.errors import ParityError
from parity.messages import message
from parity.paths import elsewhere, named_in
from parity.records import Kind, Verdict
from parity.report.policy import Counted, Judgement, Policy, judge
from parity.store import ArmRow, FindingFilter, Store, fingerprint
from parity.view import CONTROL
from parity.view.figures import figures_of

PAGE = 10_000


def judge_run(store: Store, run_id: str, policy: Policy) -> Judgement:
    """The policy's judgement of a stored run: the findings of its candidate arms, controls left out.

    Raises ParityError for a run that has no verdict yet.
    """
    run = store.run(run_id)
    if run.verdict is None:
        raise ParityError(
            message("report.run_no_verdict", "run {run} has no verdict yet", run=run.id),
            hint=message(
                "report.finish_2",
                "finish it with `parity run --resume {run}`",
                run=named_in(run.id, elsewhere(store.path)),
            ),
        )
    arms = [arm for arm in store.arms(run.id) if not arm.is_baseline]
    # A capture that was named to be compared is judged, whatever planted its faults.
    judged = [arm for arm in arms if run.source == "compare" or CONTROL not in arm.variant]
    return judge(
        policy,
        _stored(store, run.id, frozenset(arm.name for arm in judged)),
        verdict=run.verdict,
        completions=sum(sum(store.count_classes(run.id, arm.name).values()) + _never_came(arm) for arm in judged),
        other_reasons=any(_also_inconclusive(arm) for arm in judged) or any(_missed(arm) for arm in arms),
    )


def _stored(store: Store, run_id: str, arms: frozenset[str]) -> Iterator[Counted]:
    where = FindingFilter(arms=arms)
    offset = 0
    while rows := store.page_findings(run_id, where, offset=offset, limit=PAGE) if arms else []:
        for row in rows:
            yield Counted(row.arm, row.kind, row.severity, row.fingerprint, str(row.state))
        offset += len(rows)


def judge_comparison(
    comparison: Comparison, plan: str, policy: Policy, states: Mapping[str, str] | None = None
) -> Judgement:
    """The same for a comparison in memory, of the plan with this hash.

    `states` maps fingerprints to what somebody decided about them.
    """
    decided = states or {}
    found = (
        Counted(one.arm, str(one.kind), str(one.severity), mark, decided.get(mark, "new"))
        for one in comparison.findings
        for mark in (fingerprint(plan, one),)
    )
    corrupt = bool(comparison.corrupt)
    return judge(
        policy,
        found,
        verdict=comparison.verdict,
        completions=len(comparison.classes),
        other_reasons=comparison.verdict is Verdict.DIVERGED and len(comparison.reasons) > int(corrupt),
    )


def _never_came(arm: ArmRow) -> int:
    """Completions that a comparison counts and that no table has."""
    return dict(figures_of(arm.stats).kinds).get(str(Kind.MISSING_COMPLETION), 0) if arm.stats else 0


def _also_inconclusive(arm: ArmRow) -> bool:
    """A diverged arm whose reasons name more than its findings: it would have been INCONCLUSIVE without them."""
    return arm.verdict == Verdict.DIVERGED and len(arm.reasons) > 1


def _missed(arm: ArmRow) -> bool:
    """A positive control in which nothing was found."""
    return CONTROL in arm.variant and arm.verdict not in (None, Verdict.DIVERGED)
