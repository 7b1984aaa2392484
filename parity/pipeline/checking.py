"""Whether what is kept is whole: the database, the directories of its runs, and what the one says of the other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from parity.capture import UNFINISHED, ScoreFile, look_at
from parity.capture.steps import read_steps, steps_path
from parity.errors import ParityError
from parity.files import leads_to, read_whole
from parity.messages import Message, message
from parity.paths import default_database, elsewhere, named_in, runs_dir
from parity.pipeline.directory import RunDirectory
from parity.plan import Plan
from parity.plan.digest import plan_hash
from parity.records.plan_digest import plan_digest
from parity.store import ArmRow, RunRow, RunStatus, Store
from parity.store.integrity import miscounted, problems

MAX_RESULT_BYTES: Final = 1 << 30
SAID: Final = 5
"""Problems of one file that are named."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong. `where`: the run, or "" for the database itself."""

    where: str
    what: Message
    mend: Message


@dataclass(frozen=True, slots=True)
class Checked:
    """What was looked at. `working`: runs that another process is working on, whose files were left alone."""

    runs: int
    faults: tuple[Fault, ...]
    working: tuple[str, ...] = ()


def check(store: Store, run: str | None = None) -> Checked:
    """Look at the database and at all its runs, or at one, and without one at directories that no run knows.

    Raises ParityError where the database cannot be read, or has no such run.
    """
    rows = store.runs() if run is None else [store.run(run)]
    faults = [Fault("", one, _store_again()) for one in problems(store)]
    working = []
    for row in rows:
        if row.directory is not None and RunDirectory(Path(row.directory)).in_use():
            working.append(row.id)
        else:
            faults += _of_run(store, row)
    if run is None:
        faults += _unknown(store, rows)
    return Checked(len(rows), tuple(faults), tuple(working))


# ------------------------------------------------------------------ what mends it


def _store_again() -> Message:
    return message(
        "check.store_again",
        "restore the file from a backup; or move it away and store each run anew from its directory: `parity run "
        "--resume --out DIR` (what was triaged is lost)",
    )


def _resume(store: Store, row: RunRow) -> Message:
    return message(
        "check.resume", "`parity run --resume {run}` makes anew what is missing or damaged", run=_named(store, row)
    )


def _delete(store: Store, row: RunRow) -> Message:
    return message("check.delete", "put it back, or `parity runs delete {run}`", run=_named(store, row))


def _named(store: Store, row: RunRow) -> str:
    return named_in(row.id, elsewhere(store.path))


# ------------------------------------------------------------------ one run


def _of_run(store: Store, row: RunRow) -> Iterator[Fault]:
    arms = store.arms(row.id)
    for arm, (said, found) in miscounted(store, row.id).items():
        yield Fault(
            row.id,
            message(
                "check.findings",
                "{arm}: the database counts {said} findings and holds {found}",
                arm=arm,
                said=sum(said.values()),
                found=sum(found.values()),
            ),
            _resume(store, row) if row.directory else _compare_again(),
        )
    if row.directory is None:
        return  # captures compared: where they lie now is nobody's promise
    directory = RunDirectory(Path(row.directory))
    if not os.path.isdir(directory.root):
        gone = message("check.gone", "its directory {directory} is gone", directory=row.directory)
        yield Fault(row.id, gone, _delete(store, row))
        return
    plan = None
    try:
        plan = directory.plan()
    except ParityError as error:
        yield Fault(row.id, error.message, _delete(store, row))
    if plan is not None:
        yield from _of_directory(store, row, arms, directory, plan)


def _compare_again() -> Message:
    return message("check.compare_again", "compare the captures again with `parity compare --save`")


def _of_directory(
    store: Store, row: RunRow, arms: Sequence[ArmRow], directory: RunDirectory, plan: Plan
) -> Iterator[Fault]:
    if row.source == "run" and plan_hash(plan) != row.plan_hash:
        yield Fault(
            row.id,
            message(
                "check.other_plan", "{path} is not the plan that the run was made with", path=str(directory.plan_file)
            ),
            _delete(store, row),
        )
    for arm in arms:
        yield from _of_arm(store, row, arm, directory, plan)
    for path in (directory.scores, directory.crossings, directory.arbiter):
        if path.exists():
            yield from _of_scores(store, row, path, {*(one.name for one in arms), plan.baseline})
    yield from _of_result(store, row, directory)


def _of_arm(store: Store, row: RunRow, arm: ArmRow, directory: RunDirectory, plan: Plan) -> Iterator[Fault]:
    path = directory.capture(arm.name)
    done = arm.status in ("captured", "compared")
    if not path.exists():
        if done:
            yield Fault(row.id, message("check.no_capture", "{path} is gone", path=str(path)), _resume(store, row))
        return
    try:
        looked = look_at(path)
    except ParityError as error:
        yield Fault(row.id, error.message, _resume(store, row))
        return
    wrong = [one for one in looked.problems if done or one.message.id not in UNFINISHED]
    for problem in wrong[:SAID]:
        yield Fault(row.id, problem.found_in(str(path)), _resume(store, row))
    if len(wrong) > SAID:
        yield Fault(
            row.id,
            message("check.more", "{path}: {more} problems more", path=str(path), more=len(wrong) - SAID),
            message("check.lists", "`parity capture check {path}` lists them", path=str(path)),
        )
    if wrong:
        return
    header = looked.header
    if header is not None and (header.arm != arm.name or header.plan_digest not in (None, plan_digest(plan.to_json()))):
        other = message("check.other_capture", "{path} is a capture of another arm or plan", path=str(path))
        yield Fault(row.id, other, _resume(store, row))
    stored = sum(store.count_classes(row.id, arm.name).values())
    if done and stored != looked.completions:
        yield Fault(
            row.id,
            message(
                "check.completions",
                "{arm}: the database has {stored} completions, {path} has {found}",
                arm=arm.name,
                stored=stored,
                path=str(path),
                found=looked.completions,
            ),
            _resume(store, row),
        )
    yield from _of_steps(store, row, steps_path(path))


def _of_steps(store: Store, row: RunRow, path: Path) -> Iterator[Fault]:
    if path.exists():
        try:
            read_steps(path)
        except ParityError as error:
            yield Fault(row.id, error.message, _resume(store, row))


def _of_scores(store: Store, row: RunRow, path: Path, arms: set[str]) -> Iterator[Fault]:
    try:
        ScoreFile(path).of(arms)
    except ParityError as error:
        unfinished = row.status is not RunStatus.FINISHED and any(
            isinstance(one, Message) and one.id in UNFINISHED for one in error.message.parameters.values()
        )
        if not unfinished:
            yield Fault(row.id, error.message, _resume(store, row))


def _of_result(store: Store, row: RunRow, directory: RunDirectory) -> Iterator[Fault]:
    path = directory.result
    if row.status is not RunStatus.FINISHED:
        return
    if not path.exists():
        yield Fault(row.id, message("check.no_capture", "{path} is gone", path=str(path)), _resume(store, row))
        return
    try:
        result = orjson.loads(read_whole(path, MAX_RESULT_BYTES))
        said = result["verdict"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        damaged = message("check.damaged", "{path} is damaged: {said}", path=str(path), said=str(error)[:200])
        yield Fault(row.id, damaged, _resume(store, row))
        return
    if said != row.verdict:
        yield Fault(
            row.id,
            message(
                "check.verdict",
                "{path} says {said}, the database {stored}",
                path=str(path),
                said=str(said)[:40],
                stored=str(row.verdict),
            ),
            _resume(store, row),
        )


def _unknown(store: Store, rows: Sequence[RunRow]) -> Iterator[Fault]:
    """Directories among parity's own runs that the database does not know, and that are not another one's."""
    known = {leads_to(Path(row.directory)) for row in rows if row.directory is not None}
    for root in sorted(runs_dir().glob("*/")):
        directory = RunDirectory(root)
        if root.resolve() in known or not directory.plan_file.is_file() or directory.in_use():
            continue
        if leads_to(Path(directory.describe().db or default_database())) != leads_to(store.path):
            continue
        yield Fault(
            directory.run_id,
            message("check.unknown", "the database does not know the run in {directory}", directory=str(root)),
            message(
                "check.store_it", "`parity run --resume --out {directory}` finishes and stores it", directory=str(root)
            ),
        )
