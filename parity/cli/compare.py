"""`parity compare`: two capture files, wherever they were made."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from parity.cli.options import database_option, json_option, tolerance_option
from parity.cli.output import console, emit_json, say


@click.command()
@click.argument("baseline", type=click.Path(path_type=Path))
@click.argument("candidate", type=click.Path(path_type=Path))
@click.option(
    "--scores",
    type=click.Path(path_type=Path),
    multiple=True,
    help="File with the reference's scores of the completions. Repeatable.",
)
@tolerance_option()
@click.option(
    "--model", type=click.Path(path_type=Path), help="Checkpoint directory: shows and checks text, not only ids."
)
@click.option("--partial", is_flag=True, help="Accept captures that are not finished.")
@click.option("--save", is_flag=True, help="Store the comparison as a run (implied by --db).")
@database_option
@json_option
def compare(
    baseline: Path,
    candidate: Path,
    scores: tuple[Path, ...],
    tolerance: float | str | None,
    model: Path | None,
    partial: bool,
    save: bool,
    db: Path | None,
    as_json: bool,
) -> int:
    """Compare two capture files.

    Works on the files alone, on any machine. Scores may also stand inside either capture. Exit code 0 for
    PASS, 1 for DIVERGED, 4 for INCONCLUSIVE.
    """
    from parity.capture import read_capture, read_scores
    from parity.cli.verdict import exit_code
    from parity.errors import ParityError
    from parity.pipeline import analyse, arm_result
    from parity.pipeline.analyse import divergences
    from parity.plan import DEFAULT_TOLERANCE
    from parity.records import ScoreKey, TopLogprobs

    if model is not None and not (model / "tokenizer.json").is_file():
        raise ParityError(f"{model} has no tokenizer.json", hint="give --model a checkpoint directory")
    first = read_capture(baseline, partial=partial)
    second = read_capture(candidate, partial=partial)
    all_scores: dict[ScoreKey, TopLogprobs] = {}
    for path in scores:
        all_scores.update(read_scores(path))
    comparison = analyse(
        first,
        second,
        all_scores,
        tolerance=DEFAULT_TOLERANCE if tolerance is None else tolerance,
        model=model,
    )
    kept = {"path": str(model.absolute())} if model is not None else {}
    files = [str(path.absolute()) for path in scores]
    run_id = _save(db, first, second, comparison, baseline, candidate, kept, files) if save or db is not None else None
    if as_json:
        emit_json({**comparison.to_json(), **({"run": run_id} if run_id else {})})
    else:
        from parity.plan.checkpoint import shipped_checkpoint
        from parity.report.summary import from_comparison
        from parity.report.terminal import print_summary

        # Only to show text: it is checked against the ids where the user names the checkpoint.
        shown = model or shipped_checkpoint(first.header.model)
        results = {capture.header.arm: arm_result(capture) for capture in (first, second)}
        print_summary(
            console(),
            from_comparison(first, second, comparison, divergences(first, second), results, shown),
        )
    if run_id:
        say(f"stored as run {run_id}")
    return exit_code(comparison.verdict)


def _save(
    db: Path | None,
    first: Any,
    second: Any,
    comparison: Any,
    baseline: Path,
    candidate: Path,
    model: dict[str, str],
    scores: list[str],
) -> str:
    import parity
    from parity.pipeline import arm_result, for_store, new_run_id, plan_of_captures
    from parity.store import NewRun, RunStatus, Store

    run_id = new_run_id()
    plan = plan_of_captures(first, [second])
    plan["model"] = {**plan["model"], **model}  # where the files are: for reports, no part of the plan's hash
    plan["scores"] = {"files": scores}
    command = shlex.join(["parity", *sys.argv[1:]])
    with Store.open(db) as store:
        new = NewRun(run_id, plan, command, source="compare", versions={"parity": parity.__version__})
        store.create_run(new)
        for capture, path in ((first, baseline), (second, candidate)):
            store.save_arm(run_id, capture.header.arm, capture, str(path.absolute()), arm_result(capture))
        store.save_comparison(run_id, second.header.arm, for_store(comparison, first, second))
        store.finish_run(run_id, RunStatus.FINISHED, verdict=str(comparison.verdict), reasons=comparison.reasons)
    return run_id
