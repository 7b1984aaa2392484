"""What earlier watches of the same plan left in the database."""

from __future__ import annotations

from parity.comparator.stats import Stats
from parity.plan import Plan
from parity.plan.digest import plan_hash
from parity.store import Store
from parity.watch.evidence import NOTHING_YET, Evidence


def evidence_of(store: Store, plan: Plan) -> Evidence:
    """The evidence of all stored runs of a plan, so that a watch that was ended and begun again forgets nothing."""
    evidence = NOTHING_YET
    for run in store.compared_with_plan(plan_hash(plan)):
        arms = {arm.name: Stats.from_json(arm.stats) for arm in store.arms(run) if arm.verdict and not arm.is_baseline}
        evidence = evidence.after(run, arms) if arms else evidence
    return evidence
