"""`parity compare`: two capture files, wherever they were made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from parity.cli.gate import policy_option
from parity.cli.output import command_said, console, emit_long_json, say
from parity.cli.reading import Watch, watched
from parity.cli.shared import CapturePlace, database_option, json_option, tolerance_option
from parity.cli.speaking import Misused
from parity.messages import message

if TYPE_CHECKING:
    from parity.capture.remote import Place
    from parity.capture.stretch import Readers
    from parity.comparator import Comparison
    from parity.comparator.types import Spread
    from parity.pipeline.inside import Inside
    from parity.records import Capture, Json, Scores
    from parity.view import RunView

MANY_DRAWN: Final = 50_000
"""Tokens that were drawn at random, which take two seconds in one process."""


@click.command()
@click.argument("baseline", type=CapturePlace())
@click.argument("candidate", type=CapturePlace(), required=False)
@click.option(
    "--against",
    metavar="RUN",
    help="Golden run to hold the one capture named against: its directory, its id or the beginning of that.",
)
@click.option("--arm", help="Arm of the golden run. [default: the one of the capture's name, else its baseline]")
@click.option(
    "--scores",
    type=CapturePlace(),
    multiple=True,
    help="File, or directory of shards, or URL of either, with the reference's scores of the completions. Repeatable.",
)
@click.option(
    "--steps",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="Steps file of either arm, where it is not beside its capture. Repeatable.",
)
@tolerance_option()
@click.option(
    "--model", type=click.Path(path_type=Path), help="Checkpoint directory: shows and checks text, not only ids."
)
@click.option("--partial", is_flag=True, help="Accept captures that are not finished.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes that read and compare large captures. [default: one for each usable core, at most 8]",
)
@click.option(
    "--ray",
    is_flag=True,
    help="Read large captures on the Ray cluster $RAY_ADDRESS, or the one of this machine; docs/capture.md.",
)
@policy_option
@click.option("--details", is_flag=True, help="Print all figures of a PASS, and the logprobs of its widest near-tie.")
@click.option("--save", is_flag=True, help="Store the comparison as a run (implied by --db).")
@database_option
@json_option
def compare(
    baseline: Place,
    candidate: Place | None,
    against: str | None,
    arm: str | None,
    scores: tuple[Place, ...],
    steps: tuple[Path, ...],
    tolerance: float | str | None,
    model: Path | None,
    partial: bool,
    jobs: int | None,
    ray: bool,
    policy_file: Path | None,
    details: bool,
    save: bool,
    db: Path | None,
    as_json: bool,
) -> int:
    """Compare two capture files, or what a kit sent back.

    Works on the files alone, on any machine. Scores may also stand inside either capture. With --against, one
    capture is compared with an arm of a golden run. Exit code 0 for PASS, 1 for DIVERGED, 4 for INCONCLUSIVE.
    """
    from parity.cli import gate
    from parity.cli.verdict import exit_code
    from parity.errors import ParityError
    from parity.pipeline.analyse import analyse, hash_of_captures
    from parity.pipeline.inside import with_drafts, with_steps
    from parity.pipeline.saving import save_comparison
    from parity.plan import DEFAULT_TOLERANCE
    from parity.store import Store

    if candidate is None and against is None and isinstance(baseline, Path) and _of_a_kit(baseline):
        from parity.cli.kit import compare_result

        return compare_result(baseline, model, policy_file, db, as_json=as_json)
    policy = gate.load(policy_file)
    if model is not None and not (model / "tokenizer.json").is_file():
        raise ParityError(
            message("cli.no_tokenizer_json", "{model} has no tokenizer.json", model=str(model)),
            hint=message("cli.give_model_checkpoint", "give --model a checkpoint directory"),
        )
    with watched([*scores, baseline, *([] if candidate is None else [candidate])]) as watch:
        with _readers(jobs, ray) as readers:
            sides = _sides(baseline, candidate, against, arm, scores, partial, db, watch, readers)
        inside = _inside(sides, steps)
        comparison = analyse(
            sides.baseline,
            with_drafts(sides.candidate, inside[1]),
            sides.scores,
            tolerance=DEFAULT_TOLERANCE if tolerance is None else tolerance,
            model=model,
            spread=watch.comparing(_comparers(sides, jobs)),
        )
        comparison = with_steps(comparison, *inside)
    store = save or db is not None
    run_id = judgement = name = None
    if store or policy is not None or sides.baseline.header.arm != sides.candidate.header.arm:
        name = hash_of_captures(sides.baseline, sides.candidate, model)
        if store:
            with Store.open(db) as database:
                run_id = save_comparison(
                    database,
                    sides.baseline,
                    sides.candidate,
                    comparison,
                    model=model,
                    paths=sides.paths,
                    score_files=sides.score_files,
                    command=command_said(),
                )
        judgement = gate.of_comparison(comparison, name, policy, db) if policy is not None else None
    if as_json:
        from parity.view import next_commands

        view = _view(sides, comparison, model)
        more: dict[str, Json] = {"next": [one.to_json() for one in next_commands(view)]}
        more |= {"run": run_id} if run_id else {}
        more |= {"policy": judgement.to_json()} if judgement else {}
        said = {**replace(comparison, findings=()).to_json(), "counts": comparison.counts, **more}
        emit_long_json(said, "findings", _with_fingerprints(comparison, name))
    else:
        from parity.report.terminal import print_summary

        print_summary(console(), _view(sides, comparison, model), brief=not details)
    if run_id:
        say(message("cli.stored_run", "stored as run {run_id}", run_id=run_id))
    return judgement.exit_code if judgement is not None else exit_code(comparison.verdict)


def _with_fingerprints(comparison: Comparison, plan: str | None) -> Iterator[dict[str, Json]]:
    """Findings as JSON, each with what an allowlist names it by; `plan`: the hash of the plan, None without one."""
    from parity.store import fingerprint

    for finding in comparison.findings:
        yield finding.to_json() | ({} if plan is None else {"fingerprint": fingerprint(plan, finding)})


def _readers(jobs: int | None, ray: bool) -> AbstractContextManager[Readers]:
    """Who reads large captures. Raises Misused."""
    if not ray:
        from parity.capture.crew import Crew

        return Crew(jobs)
    if jobs is not None:
        raise Misused(message("cli.jobs_or_ray", "--jobs is of this machine, --ray of a cluster: name one of them"))
    from parity.ray.readers import RayReaders

    return RayReaders()


def _comparers(sides: _Sides, jobs: int | None) -> Spread:
    """Who compares: of greedy completions that are held in memory, copies of this process would take longer than the
    rest."""
    from parity.comparator.types import alone
    from parity.forked import Forked
    from parity.records import Lazy
    from parity.records.score_table import ScoreTable

    is_large = isinstance(sides.candidate.completions, Lazy) or isinstance(sides.scores, ScoreTable)
    return Forked(jobs) if is_large or _are_many_drawn(sides.candidate) else alone


def _are_many_drawn(arm: Capture) -> bool:
    from parity.comparator.inputs.questions import temperature_in

    own = (arm.completions[key].sampling for key in arm.own_sampling)
    is_drawn = any(temperature_in(one) > 0 for one in (arm.header.sampling, *own))
    return is_drawn and arm.tokens.total >= MANY_DRAWN


def _of_a_kit(path: Path) -> bool:
    from parity.kit.read import is_result

    return is_result(path)


@dataclass(frozen=True)
class _Sides:
    """Both captures, where they are, and the scores of either."""

    baseline: Capture
    candidate: Capture
    paths: tuple[Place, Place]
    scores: Scores
    score_files: list[str]


def _sides(
    baseline: Place,
    candidate: Place | None,
    against: str | None,
    arm: str | None,
    score_files: tuple[Place, ...],
    partial: bool,
    db: Path | None,
    watch: Watch,
    readers: Readers,
) -> _Sides:
    from parity.capture import read_capture, read_scores
    from parity.capture.lines import no_such_capture
    from parity.records import all_scores

    if against is None and candidate is None:
        if isinstance(baseline, Path) and not baseline.exists():
            raise no_such_capture(baseline)
        raise Misused(message("cli.name_two_captures", "name two captures, or one and --against RUN"))
    if against is not None and candidate is not None:
        raise Misused(
            message(
                "cli.against_run_takes", "--against RUN takes the place of the first capture: name one capture only"
            )
        )
    if against is None and arm is not None:
        raise Misused(message("cli.arm_names_arm", "--arm names an arm of the golden run: it goes with --against"))
    known: list[Scores] = []
    for path in score_files:
        found = read_scores(path, seen=watch.file(path), readers=readers)
        if not found:
            say(message("cli.warning_holds_no", "warning: {path} holds no scores", path=str(path)))
        known.append(found)
    scores = all_scores(known)
    files = [str(path.absolute()) for path in score_files]
    if against is None:
        assert candidate is not None
        first = read_capture(baseline, partial=partial, seen=watch.file(baseline), readers=readers)
        second = read_capture(candidate, partial=partial, beside=first, seen=watch.file(candidate), readers=readers)
        return _Sides(first, second, (baseline, candidate), scores, files)
    from parity.pipeline.golden import load_golden

    second = read_capture(baseline, partial=partial, seen=watch.file(baseline), readers=readers)
    golden = load_golden(against, second.header.arm, arm=arm, db=db)
    files += [str(path.absolute()) for path in golden.score_files]
    return _Sides(golden.capture, second, (golden.path, baseline), all_scores((golden.scores, scores)), files)


def _inside(sides: _Sides, files: tuple[Path, ...]) -> list[Inside]:
    """What the recorder saw of both arms: in the files named, else in those beside the captures."""
    from parity.capture.steps import RowSteps, read_steps
    from parity.errors import ParityError
    from parity.pipeline.inside import look_inside, steps_beside
    from parity.pipeline.server_steps import arms_by_answers

    arms = {capture.header.arm: capture for capture in (sides.baseline, sides.candidate)}
    named: dict[str, list[RowSteps]] = {}
    for file in files:
        for start in read_steps(file):
            known = [start.header.arm] if start.header.arm else arms_by_answers(arms.values(), start)
            if not set(known) & set(arms):
                raise ParityError(
                    message(
                        "cli.steps_other_arm",
                        "{path} has the steps of {arm}, and the captures are of {arms}",
                        path=str(file),
                        arm=start.header.arm or "?",
                        arms=sorted(arms),
                    ),
                    hint=message("cli.steps_of_these", "name the steps file of one of these arms"),
                )
            for arm in known:
                named.setdefault(arm, []).append(start)
    pairs = zip((sides.baseline, sides.candidate), sides.paths, strict=True)
    found = []
    for capture, path in pairs:
        beside = steps_beside(path) if isinstance(path, Path) else ()
        found.append(look_inside(capture, named.get(capture.header.arm) or beside))
    return found


def _view(sides: _Sides, comparison: Comparison, model: Path | None) -> RunView:
    from parity.plan.checkpoint import shipped_checkpoint
    from parity.view import of_captures

    first, second = sides.baseline, sides.candidate
    # Only to show text: it is checked against the ids where the user names the checkpoint.
    shown = model or shipped_checkpoint(first.header.model)
    return of_captures([first, second], {second.header.arm: comparison}, shown)
