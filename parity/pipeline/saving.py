"""A comparison of two captures as a run of the store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from parity._version import __version__
from parity.capture.remote import Place
from parity.comparator import Comparison
from parity.pipeline.analyse import arm_result, for_store, plan_of_captures
from parity.pipeline.directory import new_run_id
from parity.plan.digest import plan_hash
from parity.records import Capture
from parity.store import NewRun, RunStatus, Store


def save_comparison(
    store: Store,
    baseline: Capture,
    candidate: Capture,
    comparison: Comparison,
    *,
    model: Path | None = None,
    paths: Sequence[Place] = (),
    score_files: Sequence[str] = (),
    command: str = "",
) -> str:
    """The id of the run that it became. `paths`: where both captures are, where these do not say it.

    Raises ParityError for two captures of one arm.
    """
    run_id = new_run_id()
    plan = plan_of_captures(baseline, [candidate], model)
    store.create_run(
        NewRun(
            run_id,
            plan,
            command,
            source="compare",
            versions={"parity": __version__},
            plan_hash=plan_hash(plan, sampling=baseline.header.sampling),
            score_files=tuple(score_files),
        )
    )
    given: list[Place] = list(paths) or [Path(baseline.source), Path(candidate.source)]
    for capture, path in zip((baseline, candidate), given, strict=True):
        where = str(path.absolute()) if path.name else ""
        store.save_arm(run_id, capture.header.arm, capture, where, arm_result(capture))
    store.save_comparison(run_id, candidate.header.arm, for_store(comparison))
    store.finish_run(run_id, RunStatus.FINISHED, verdict=str(comparison.verdict), reasons=comparison.reasons)
    return run_id
