"""plan → run → score → compare → store, each stage committed before the next, all of it resumable.

What is on the disk decides what is left to do. A capture with a footer is complete; scores likewise; the
comparison is computed again (it is fast and gives the same result); the store replaces rows of the same
stage. So `resume` is the same call as `execute`, after a kill -9 at any moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from parity.capture import ScoreFile
from parity.capture.problems import CaptureError
from parity.comparator import DEFAULT_ALPHA, Comparison
from parity.errors import ParityError, writing
from parity.explain.located import Locating
from parity.messages import Message, Say, message
from parity.pipeline import controls
from parity.pipeline.analyse import analyse, arm_result, for_store
from parity.pipeline.arbitrate import arbitrate, with_arbitration
from parity.pipeline.beneath import look_beneath, unreadable, with_sketches
from parity.pipeline.capturing import Captured, Runner, capture_all
from parity.pipeline.compared import Compared
from parity.pipeline.crossing import crossed
from parity.pipeline.deployed import first_rung
from parity.pipeline.directory import RunDirectory, write_whole
from parity.pipeline.inside import Inside, look_inside, steps_beside, with_drafts, with_steps
from parity.pipeline.outcome import Outcome, conclude
from parity.plan import Arm, Plan
from parity.records import Capture, Scores, Verdict
from parity.run import Interrupted
from parity.store import NewRun, RunStatus, Store


def execute(
    plan: Plan,
    directory: RunDirectory,
    store: Store,
    runner: Runner,
    *,
    command: str,
    versions: Mapping[str, str],
    say: Say,
    alpha: float = DEFAULT_ALPHA,
) -> Outcome:
    """Run a plan in its directory, or finish what an earlier attempt left.

    A candidate whose engine fails is left out, as long as another one can be compared: the outcome is an ERROR that
    names it, and what the others came to. `alpha`: the error rate of the statistical tests of each comparison.

    Raises BackendError (an engine), Interrupted (Ctrl-C), ParityError (disk, database, input). Whatever it
    raises, what was captured stays, the store holds whole stages only, and calling it again goes on.
    """
    if plan.candidates and all(arm.control for arm in plan.candidates):
        raise _controls_only()
    began = time.monotonic()
    run_id = directory.run_id
    with directory.locked():
        recorder = _Recorder(store, run_id, say)
        store.create_run(NewRun(run_id, plan, command, directory=str(directory.root), versions=versions))
        try:
            captured = capture_all(plan, directory, runner, recorder, say)
            arbiter_scores = arbitrate(plan, directory, runner, captured.captures, say)
            outcome = _compare_all(plan, directory, captured, arbiter_scores, recorder, alpha)
        except Interrupted as error:
            recorder.close(RunStatus.INTERRUPTED, said=error.message, duration=time.monotonic() - began)
            raise
        except KeyboardInterrupt:
            recorder.close(
                RunStatus.INTERRUPTED,
                said=message("pipeline.interrupted", "interrupted"),
                duration=time.monotonic() - began,
            )
            raise
        except ParityError as error:
            recorder.close(
                RunStatus.FAILED,
                verdict=Verdict.ERROR,
                said=error.message,
                duration=time.monotonic() - began,
            )
            raise
        recorder.close(
            RunStatus.FAILED if outcome.failed else RunStatus.FINISHED,
            verdict=outcome.verdict,
            reasons=outcome.reasons,
            duration=time.monotonic() - began,
        )
        recorder.raise_if_failed()
        if outcome.failed:
            return outcome  # without a result the run is unfinished: resuming it tries the failed arms again
        hint = message("pipeline.make_room_then", "make room, then `parity run --resume {run_id}`", run_id=run_id)
        with writing(directory.result, hint):
            write_whole(directory.result, outcome.json_pieces())
        return outcome


class _Recorder:
    """Stores each stage. A store that fails is reported at the end: the captures matter more."""

    def __init__(self, store: Store, run_id: str, say: Say) -> None:
        self._store, self._run, self._say = store, run_id, say
        self._failed: ParityError | None = None

    def arm(self, arm: str, capture: Capture, path: Path) -> None:
        self._try(lambda: self._store.save_arm(self._run, arm, capture, str(path), arm_result(capture)))

    def comparison(self, arm: str, comparison: Comparison) -> None:
        self._try(lambda: self._store.save_comparison(self._run, arm, for_store(comparison)))

    def arm_failed(self, arm: str, error: ParityError) -> None:
        self._try(lambda: self._store.fail_arm(self._run, arm, error.message))

    def close(
        self,
        status: RunStatus,
        *,
        verdict: Verdict | None = None,
        reasons: Sequence[Message] = (),
        said: Message | None = None,
        duration: float,
    ) -> None:
        self._try(
            lambda: self._store.finish_run(
                self._run,
                status,
                verdict=None if verdict is None else str(verdict),
                reasons=reasons,
                message=said,
                duration=duration,
            )
        )

    def _try(self, write: Callable[[], None]) -> None:
        if self._failed is not None:
            return  # a later stage must not be stored when an earlier one is missing
        try:
            write()
            self._store.forget_pages()  # else they add up with every arm, to what the store allows itself
        except ParityError as error:
            self._failed = error
            self._say(
                message(
                    "pipeline.warning_not_stored",
                    "warning: not stored: {message}; going on, the captures are safe",
                    message=error.message,
                )
            )

    def raise_if_failed(self) -> None:
        if self._failed is not None:
            raise ParityError(
                message(
                    "pipeline.run_ran_end",
                    "the run {run} ran to its end but was not stored: {message}",
                    run=self._run,
                    message=self._failed.message,
                ),
                hint=message(
                    "pipeline.then_stores_without",
                    "{hint}; then `parity run --resume {run}` stores it without running anything again",
                    hint=self._failed.hint,
                    run=self._run,
                ),
            )


# --------------------------------------------------------------------------- comparing


def _compare_all(
    plan: Plan,
    directory: RunDirectory,
    captured: Captured,
    arbiter_scores: ScoreFile | None,
    recorder: _Recorder,
    alpha: float,
) -> Outcome:
    """One candidate after the other, each gone before the next is read."""
    scores = ScoreFile(directory.scores) if directory.scores.exists() else None
    baseline = captured.captures[plan.baseline]
    of_baseline = [{} if file is None else file.of({plan.baseline}) for file in (scores, arbiter_scores)]
    comparisons = Compared(directory.root)
    controlled: list[controls.Control] = []
    for arm in plan.candidates:
        if arm.name not in captured.captures:
            continue
        of_arm, ruled = (
            {} if file is None else {**file.of({arm.name}), **known}
            for file, known in zip((scores, arbiter_scores), of_baseline, strict=True)
        )
        control = _compare_one(
            plan, arm, directory, baseline, captured.captures[arm.name], of_arm, ruled, comparisons, recorder, alpha
        )
        controlled += [control] if control is not None else []
    if not comparisons:
        raise _controls_only()
    failed = {name: error.message for name, error in captured.failed.items()}
    ladders = partial(first_rung, plan)
    as_deployed = {arm.backend for arm in plan.candidates if arm.deployed and arm.name in captured.captures}
    return conclude(
        directory.run_id,
        directory.root,
        plan.baseline,
        comparisons,
        controlled,
        failed,
        ladders,
        as_deployed=as_deployed,
    )


def _inside(plan: Plan, directory: RunDirectory, capture: Capture) -> Inside:
    """What the recorder saw of an arm, where it was recorded. A damaged file says nothing and ends nothing."""
    try:
        steps = steps_beside(directory.capture(capture.header.arm))
    except CaptureError as error:
        return Inside((), unrecorded=error.message)
    found = look_inside(capture, steps)
    if not plan.record or found.row_steps or found.unrecorded:
        return found
    why = message("pipeline.no_recorder", "its backend {backend} has no recorder", backend=capture.header.backend)
    return replace(found, unrecorded=why) if "steps" not in capture.header.extra else found


def _beneath(directory: RunDirectory, capture: Capture, baseline: Capture) -> Locating | None:
    """What the sketches of an arm say. A damaged file says nothing and ends nothing."""
    path, beside = (directory.capture(one.header.arm) for one in (capture, baseline))
    try:
        return look_beneath(capture, path, directory.scores, None if capture is baseline else (baseline, beside))
    except CaptureError as error:
        return unreadable(error.message)


def _controls_only() -> ParityError:
    return ParityError(
        message("pipeline.plan_positive_controls", "the plan has positive controls only"),
        hint=message("pipeline.add_arm_without", "add an arm without a planted fault"),
    )


def _compare_one(
    plan: Plan,
    arm: Arm,
    directory: RunDirectory,
    baseline: Capture,
    candidate: Capture,
    scores: Scores,
    arbiter_scores: Scores,
    comparisons: Compared,
    recorder: _Recorder,
    alpha: float,
) -> controls.Control | None:
    """Compare and store one arm; a positive control is judged and not added to the comparisons."""
    model = Path(plan.model.path)
    inside = [_inside(plan, directory, one) for one in (baseline, candidate)]
    comparison = analyse(
        baseline,
        with_drafts(candidate, inside[1]),
        scores,
        tolerance=plan.tolerance,
        model=model,
        alpha=alpha,
        crossed=crossed(directory, {plan.baseline, arm.name}),
    )
    comparison = with_arbitration(comparison, plan, baseline, candidate, arbiter_scores)
    comparison = with_steps(comparison, *inside)
    ours: Locating | None = None
    if plan.sketch:
        theirs, ours = (_beneath(directory, one, baseline) for one in (baseline, candidate))
        comparison = with_sketches(comparison, candidate, ours, theirs)
    recorder.comparison(arm.name, comparison)
    if arm.control:
        planted = controls.read_planted(directory.log(arm.name))
        drafter = None if ours is None else ours.drafter
        return controls.judge(arm.name, arm.control, planted, candidate, comparison, drafter)
    comparisons.add(arm.name, comparison)
    return None
