"""A golden run: captures of an engine that is trusted, to hold a new capture against."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from parity.capture import read_capture, read_scores
from parity.capture.shards import is_there
from parity.errors import ParityError
from parity.files import is_file
from parity.messages import message
from parity.pipeline.directory import RunDirectory
from parity.records import Capture, ScoreKey, Scores, TopLogprobs
from parity.store import Store

PREFIX = "golden@"


@dataclass(frozen=True, slots=True)
class Golden:
    """One arm of a golden run, renamed so that it can stand beside a candidate of the same name."""

    capture: Capture
    scores: Scores
    path: Path
    score_files: tuple[Path, ...]


def load_golden(run: str, candidate: str, *, arm: str | None = None, db: Path | None = None) -> Golden:
    """The arm of a golden run that a capture of the arm `candidate` is compared with.

    `run` is a run's directory, its id or the beginning of that. The arm is `arm`, else the one of the
    candidate's name, else the run's baseline. Raises ParityError where there is none.
    """
    captures, baseline, score_files = _files(run, db)
    name = arm or (candidate if candidate in captures else baseline)
    if name not in captures:
        raise ParityError(
            message("pipeline.run_no_arm", "run {run} has no arm {name!r}", run=run, name=name),
            hint=message("pipeline.name_one_arm", "name one of {captures} with --arm", captures=list(captures)),
        )
    path = captures[name]
    if path is None or not is_there(path):
        raise ParityError(
            message(
                "pipeline.capture_run_gone",
                "the capture of {name} in run {run} is gone: {path}",
                name=name,
                run=run,
                path=str(path or "-"),
            ),
            hint=message("pipeline.put_back_name", "put it back, or name another arm with --arm"),
        )
    scores: dict[ScoreKey, TopLogprobs] = {}
    for file in score_files:
        scores.update(read_scores(file))
    capture = read_capture(path)
    scores = {**capture.scores, **scores}
    renamed = PREFIX + capture.header.arm
    header = replace(capture.header, arm=renamed, backend=PREFIX + capture.header.backend)
    own = {ScoreKey(renamed, *key[1:]): top for key, top in scores.items() if key.arm == capture.header.arm}
    # The scores of the golden tokens stand in for logprobs: it says what else would have been
    # justified where the candidate parts, without an engine.
    completions = {
        key: one if one.lists is not None else replace(one, logprobs=own.get(ScoreKey(renamed, *key), one.logprobs))
        for key, one in capture.completions.items()
    }
    return Golden(replace(capture, header=header, completions=completions, scores={}), own, path, tuple(score_files))


@contextmanager
def _stored(run: str, db: Path | None) -> Iterator[Store]:
    """Inside, what keeps a stored run from being read is an error that says that there is no such directory either."""
    try:
        with Store.open(db, create=False) as store:
            yield store
    except ParityError as error:
        raise ParityError(
            message(
                "pipeline.no_golden",
                "{run} is neither the directory of a run, with its plan.json, nor a stored run: {why}",
                run=run,
                why=error.message,
            ),
            hint=message(
                "pipeline.name_golden",
                "name the golden run's directory (`parity run --out DIR`), or its id and --db PATH",
            ),
        ) from error


def _files(run: str, db: Path | None) -> tuple[dict[str, Path | None], str, list[Path]]:
    """(captures by arm, baseline, score files) of a run directory or a stored run."""
    if is_file(Path(run) / "plan.json"):
        directory = RunDirectory.open(Path(run))
        plan = directory.plan()
        captures: dict[str, Path | None] = {arm.name: directory.capture(arm.name) for arm in plan.arms}
        return captures, plan.baseline, [directory.scores] if is_file(directory.scores) else []
    with _stored(run, db) as store:
        row = store.run(run)
        captures = {arm.name: Path(arm.capture) if arm.capture else None for arm in store.arms(row.id)}
        files = [Path(path) for path in row.score_files]
        if row.directory:
            files.append(Path(row.directory) / "scores.jsonl")
        return captures, row.baseline, [file for file in files if is_there(file)]
