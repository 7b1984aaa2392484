"""plan → run → score → compare → store, each stage committed before the next, all of it resumable.

What is on the disk decides what is left to do. A capture with a footer is complete; scores likewise; the
comparison is computed again (it is fast and gives the same result); the store replaces rows of the same
stage. So `resume` is the same call as `execute`, after a kill -9 at any moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from parity.capture import read_scores
from parity.compare import Comparison, Suspect, triangulate
from parity.errors import ParityError
from parity.pipeline import controls
from parity.pipeline.analyse import analyse, arm_result, for_store
from parity.pipeline.arbitrate import arbitrate, second_opinion
from parity.pipeline.capturing import Runner, capture_all
from parity.pipeline.directory import RunDirectory, write_json
from parity.plan import Plan
from parity.records import Capture, Json, ScoreKey, Scores, TopLogprobs, Verdict
from parity.run import Interrupted
from parity.store import NewRun, RunStatus, Store

Say = Callable[[str], None]


@dataclass
class Outcome:
    """What a run came to. `comparisons` by candidate arm."""

    run_id: str
    directory: Path
    verdict: Verdict
    reasons: list[str]
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    suspect: Suspect | None = None
    """What the arms together point at, where several were compared."""

    def to_json(self) -> dict[str, Json]:
        return {
            "schema": "parity.result/1",
            "run": self.run_id,
            "directory": str(self.directory),
            "verdict": str(self.verdict),
            "reasons": self.reasons,
            "suspect": None if self.suspect is None else {"name": self.suspect.name, "why": self.suspect.why},
            "arms": {name: comparison.to_json() for name, comparison in self.comparisons.items()},
        }


def execute(
    plan: Plan,
    directory: RunDirectory,
    store: Store,
    runner: Runner,
    *,
    command: str,
    versions: Mapping[str, str],
    say: Say,
) -> Outcome:
    """Run a plan in its directory, or finish what an earlier attempt left.

    Raises BackendError (an engine), Interrupted (Ctrl-C), ParityError (disk, database, input). Whatever it
    raises, what was captured stays, the store holds whole stages only, and calling it again goes on.
    """
    began = time.monotonic()
    run_id = directory.run_id
    with directory.locked():
        recorder = _Recorder(store, run_id, say)
        store.create_run(NewRun(run_id, plan.to_json(), command, directory=str(directory.root), versions=versions))
        try:
            captures = capture_all(plan, directory, runner, recorder, say)
            scores = read_scores(directory.scores) if directory.scores.exists() else {}
            opinions = arbitrate(plan, directory, runner, captures)
            outcome = _compare_all(plan, directory, captures, scores, opinions, recorder)
        except Interrupted as error:
            recorder.close(RunStatus.INTERRUPTED, message=error.message, duration=time.monotonic() - began)
            raise
        except KeyboardInterrupt:
            recorder.close(RunStatus.INTERRUPTED, message="interrupted", duration=time.monotonic() - began)
            raise
        except ParityError as error:
            recorder.close(
                RunStatus.FAILED,
                verdict=Verdict.ERROR,
                message=error.message,
                duration=time.monotonic() - began,
            )
            raise
        recorder.close(
            RunStatus.FINISHED,
            verdict=outcome.verdict,
            reasons=outcome.reasons,
            duration=time.monotonic() - began,
        )
        recorder.raise_if_failed()
        try:
            write_json(directory.result, outcome.to_json())
        except OSError as error:
            raise ParityError(
                f"the result could not be written to {directory.result}: {error.strerror}",
                hint=f"make room, then `parity run --resume {run_id}`",
            ) from error
        return outcome


class _Recorder:
    """Stores each stage. A store that fails is reported at the end: the captures matter more."""

    def __init__(self, store: Store, run_id: str, say: Say) -> None:
        self._store, self._run, self._say = store, run_id, say
        self._failed: ParityError | None = None

    def arm(self, arm: str, capture: Capture, path: Path) -> None:
        self._try(lambda: self._store.save_arm(self._run, arm, capture, str(path), arm_result(capture)))

    def comparison(self, arm: str, comparison: Comparison, baseline: Capture, candidate: Capture) -> None:
        self._try(lambda: self._store.save_comparison(self._run, arm, for_store(comparison, baseline, candidate)))

    def arm_failed(self, arm: str, error: ParityError) -> None:
        self._try(lambda: self._store.fail_arm(self._run, arm, error.message))

    def close(
        self,
        status: RunStatus,
        *,
        verdict: Verdict | None = None,
        reasons: Sequence[str] = (),
        message: str | None = None,
        duration: float,
    ) -> None:
        self._try(
            lambda: self._store.finish_run(
                self._run,
                status,
                verdict=None if verdict is None else str(verdict),
                reasons=reasons,
                message=message,
                duration=duration,
            )
        )

    def _try(self, write: Callable[[], None]) -> None:
        if self._failed is not None:
            return  # a later stage must not be stored when an earlier one is missing
        try:
            write()
        except ParityError as error:
            self._failed = error
            self._say(f"warning: not stored: {error.message}; going on, the captures are safe")

    def raise_if_failed(self) -> None:
        if self._failed is not None:
            raise ParityError(
                f"the run {self._run} ran to its end but was not stored: {self._failed.message}",
                hint=f"{self._failed.hint}; then `parity run --resume {self._run}` stores it without "
                "running anything again",
            )


# --------------------------------------------------------------------------- comparing

_ORDER = (Verdict.ERROR, Verdict.DIVERGED, Verdict.INCONCLUSIVE, Verdict.PASS)
"""The worst verdict of an arm is the run's."""


def _compare_all(
    plan: Plan,
    directory: RunDirectory,
    captures: Mapping[str, Capture],
    scores: Scores,
    opinions: Scores,
    recorder: _Recorder,
) -> Outcome:
    baseline = captures[plan.baseline]
    comparisons: dict[str, Comparison] = {}
    for arm in plan.candidates:
        candidate = captures[arm.name]
        comparison = analyse(
            baseline,
            candidate,
            scores_of(scores, {arm.name, plan.baseline}),
            tolerance=plan.tolerance,
            model=Path(plan.model.path),
        )
        comparison = second_opinion(comparison, plan, baseline, candidate, opinions)
        comparisons[arm.name] = comparison
        recorder.comparison(arm.name, comparison, baseline, candidate)
    controlled = [
        controls.judge(
            arm.name, arm.control, controls.read_planted(directory.log(arm.name)), captures[arm.name],
            comparisons.pop(arm.name),
        )
        for arm in plan.candidates
        if arm.control
    ]  # fmt: skip
    if not comparisons:
        raise ParityError("the plan has positive controls only", hint="add an arm without a planted fault")
    verdict = min((c.verdict for c in comparisons.values()), key=_ORDER.index)
    several = len(comparisons) > 1
    reasons = [
        f"{name}: {reason}" if several else reason
        for name, comparison in comparisons.items()
        if comparison.verdict is verdict
        for reason in comparison.reasons
    ]
    suspect = None
    if several:
        suspect = triangulate({name: c.verdict for name, c in comparisons.items()}, plan.baseline)
    if suspect is not None:
        reasons.append(f"suspect: {suspect.name}: {suspect.why}")
    reasons += [control.sentence for control in controlled]
    if verdict is Verdict.PASS and not all(control.as_expected for control in controlled):
        verdict = Verdict.INCONCLUSIVE  # a run that misses a planted fault cannot clear anything
    return Outcome(directory.run_id, directory.root, verdict, reasons, comparisons, suspect)


def scores_of(scores: Scores, arms: set[str]) -> dict[ScoreKey, TopLogprobs]:
    return {key: value for key, value in scores.items() if key.arm in arms}
