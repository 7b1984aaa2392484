"""What comes back from a kit, as a run: its directory, and a runner that starts nothing.

The file comes from somebody else. Names in it are those that its plan makes and no others, sizes are bounded, and
captures are read by the one reader of captures.
"""

from __future__ import annotations

import shutil
import tarfile
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from parity.capture.sketches import sketches_path
from parity.capture.steps import steps_path
from parity.errors import BackendError, ParityError, writing
from parity.kit.archive import MOST_BYTES, first_name, members
from parity.messages import Message, message, verbatim
from parity.pipeline.capturing import Session
from parity.pipeline.directory import RunDirectory, write_whole
from parity.pipeline.outcome import Outcome
from parity.plan import Arm, Plan
from parity.plan.parts import Skipped
from parity.plan.trusting import of_plan
from parity.records import Json
from parity.run import ScoreItem, load_backend
from parity.run.resume import Held, read_held
from parity.run.words import one_line

ABOUT: Final = "about.json"

MOST_ABOUT: Final = 16 << 20
MOST_PLAN: Final = 64 << 20
"""Bytes; what is larger is no kit's."""

LOG_TAIL: Final = 20_000
"""Characters of a log's end in which an adapter looks for what went wrong."""


class ArmState(msgspec.Struct, frozen=True):
    """What the kit says of an arm that it began."""

    failed: str | None = None
    seconds: float = 0.0


class About(msgspec.Struct, frozen=True):
    """What the kit says of itself and its machine (`about.json`); all of it is somebody else's word."""

    schema: str = ""
    backend: str = ""
    parity: str = ""
    python: str = ""
    platform: str = ""
    minutes: float = 0.0
    seconds: float = 0.0
    versions: dict[str, str] = {}
    tools: dict[str, str] = {}
    arms: dict[str, ArmState] = {}
    rehearsal: dict[str, Any] | None = None
    scoring_failed: str | None = None

    @property
    def stopped(self) -> dict[str, str]:
        """What gave up in the rehearsal, and why."""
        found = (self.rehearsal or {}).get("stopped")
        return {str(name): str(why) for name, why in found.items()} if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class Result:
    """A kit's result in its run directory: the plan of the arms that were begun, and why some cannot be compared."""

    plan: Plan
    directory: RunDirectory
    about: About
    failed: Mapping[str, BackendError]


def is_result(path: Path) -> bool:
    """Whether a file is what a kit sends back: its first member says so."""
    return first_name(path) == ABOUT


def read_result(path: Path, directory: Path | None, run_id: str, about: Mapping[str, Json]) -> Result:
    """Make a run's directory of a result. Raises ParityError for a file that is none, and where nothing can be
    compared."""
    with TemporaryDirectory(prefix="parity-kit-") as scratch:
        said, plan = _opening(path)
        found = _unpacked(path, plan, Path(scratch))
        plan, failed = _states(path, plan, said, found)
        created = RunDirectory.create(plan, run_id, directory, {**about, "kit": msgspec.to_builtins(said)})
        with writing(created.root, message("kit.name_another_home", "name another place with PARITY_HOME")):
            for target, file in _places(plan, created).items():
                if file in found:
                    shutil.move(found[file], target)
    return Result(plan, created, said, _with_hints(plan, failed, created))


def close_result(result: Result, outcome: Outcome) -> None:
    """The run is over also where an arm failed: nothing of it can be run again here. Raises ParityError."""
    with writing(result.directory.result, message("kit.name_another_home", "name another place with PARITY_HOME")):
        write_whole(result.directory.result, outcome.json_pieces())


def _places(plan: Plan, directory: RunDirectory) -> dict[Path, str]:
    """Where each file of a result belongs."""
    paths = [directory.scores, sketches_path(directory.scores)]
    for arm in plan.arms:
        capture = directory.capture(arm.name)
        paths += [capture, steps_path(capture), sketches_path(capture), directory.log(arm.name)]
    return {path: path.name for path in paths}


class Nothing:
    """A runner for arms that ran elsewhere: what there is of them is in the directory already."""

    def __init__(self, failed: Mapping[str, BackendError]) -> None:
        self._failed = failed

    def turn(self, arm: Arm) -> str:
        return "kit"

    def load(self, plan: Plan, arm: Arm, directory: RunDirectory, stop: threading.Event) -> None:
        pass

    @contextmanager
    def open(self, plan: Plan, arm: Arm, directory: RunDirectory, stop: threading.Event) -> Iterator[Session]:
        if arm.name in self._failed:
            raise self._failed[arm.name]
        yield _Done()


class _Done:
    def generate(self) -> None:
        pass

    def score(self, items: Sequence[ScoreItem], scores_path: Path, *, top: int = 5) -> None:
        pass


# ------------------------------------------------------------------ the file


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raises ParityError for an archive that is cut off, damaged or too large."""
    try:
        yield
    except (OSError, tarfile.TarError, EOFError, ValueError, zlib.error) as error:
        raise _no_result(path, verbatim(str(error))) from error


def _opening(path: Path) -> tuple[About, Plan]:
    with _reading(path):
        found = {name: file.read() for name, file in members(path, {ABOUT: MOST_ABOUT, "plan.json": MOST_PLAN})}
    try:
        about = msgspec.json.decode(found[ABOUT], type=About)
        plan = Plan.from_json(msgspec.json.decode(found["plan.json"]), str(path))
    except KeyError as error:
        raise _no_result(path, message("kit.lacks", "it lacks {name}", name=str(error.args[0]))) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _no_result(path, verbatim(str(error))) from error
    named = list(of_plan(plan))  # the run's directory will be one of parity's own, and believed
    if named:
        raise _no_result(path, message("kit.would_run", "its plan sets {named}", named=named))
    return about, plan


def _no_result(path: Path, said: Message) -> ParityError:
    return ParityError(
        message("kit.no_result", "{path} is not what a kit writes: {said}", path=str(path), said=said),
        hint=message("kit.result", "it is called parity-kit-result.tar.gz there"),
    )


# ------------------------------------------------------------------ arms


def _unpacked(path: Path, plan: Plan, folder: Path) -> dict[str, Path]:
    """The files that a result of this plan has, in `folder`, by their names."""
    wanted = _places(plan, RunDirectory(folder)).values()
    found = {}
    with _reading(path):
        for name, file in members(path, dict.fromkeys(wanted, MOST_BYTES)):
            found[name] = folder / name
            with found[name].open("wb") as target:
                shutil.copyfileobj(file, target, 1 << 20)
    return found


def _states(path: Path, plan: Plan, about: About, found: Mapping[str, Path]) -> tuple[Plan, dict[str, str]]:
    """The plan without the arms whose time did not come, and what was said by those that failed.

    Raises ParityError where fewer than two are left."""
    held = {arm.name: _held(found.get(f"{arm.name.replace('/', '-')}.jsonl")) for arm in plan.arms}
    whole = {name for name, one in held.items() if one.complete}
    failed = {name: state.failed for name, state in about.arms.items() if state.failed and name not in whole}
    late = [arm for arm in plan.arms if arm.name not in whole and arm.name not in failed]
    skipped = [Skipped(arm.name, _why_late(plan, len(held[arm.name].completions))) for arm in late]
    if plan.baseline in failed:
        raise BackendError(
            message(
                "kit.baseline_failed",
                "{arm} failed there, and nothing was compared: {said}",
                arm=plan.baseline,
                said=one_line(failed[plan.baseline]),
            ),
            hint=_explained(plan.arm(plan.baseline), found.get(f"{plan.baseline.replace('/', '-')}.log"))
            or _look_inside(path),
        )
    if plan.baseline not in whole or len(whole) + len(failed) < 2:
        raise ParityError(
            message(
                "kit.too_little",
                "{path} ended too soon: {whole} of {arms} arms are whole, and two are needed, the baseline {baseline} "
                "among them",
                path=str(path),
                whole=len(whole),
                arms=len(plan.arms),
                baseline=plan.baseline,
            ),
            hint=_look_inside(path),
        )
    left = tuple(arm for arm in plan.arms if arm not in late)
    scored = "scores.jsonl" in found and bool(read_held(found["scores.jsonl"]).scores)
    plan = replace(plan, arms=left, skipped=(*plan.skipped, *skipped))
    if not scored:  # nothing is to be scored here, and sketches have nothing to be set against
        plan = replace(plan, sketch="", score=replace(plan.score, mode="none"))
    return plan, failed


def _held(capture: Path | None) -> Held:
    return Held() if capture is None else read_held(capture)


def _why_late(plan: Plan, done: int) -> Message:
    if not done:
        return message("kit.never_begun", "the kit's time was over before its first completion")
    return message(
        "kit.unfinished",
        "the kit's time was over after {done} of {expected} completions",
        done=done,
        expected=plan.expected_completions,
    )


def _look_inside(path: Path) -> Message:
    return message(
        "kit.look_inside",
        "logs and captures are in it (tar xzf {path}); `parity compare --partial A.jsonl B.jsonl` takes captures that "
        "are not finished; there, the same command goes on where it stopped",
        path=str(path),
    )


def _with_hints(plan: Plan, failed: Mapping[str, str], directory: RunDirectory) -> dict[str, BackendError]:
    found = {}
    for arm in plan.arms:
        if arm.name in failed:
            said = message(
                "kit.arm_failed", "{arm}: it failed there: {said}", arm=arm.name, said=one_line(failed[arm.name])
            )
            found[arm.name] = BackendError(said, hint=_explained(arm, directory.log(arm.name)))
    return found


def _explained(arm: Arm, log: Path | None) -> Message | str | None:
    """What its adapter knows to do about an arm that failed, by the end of its engine's log."""
    there = log is not None and log.exists()
    tail = log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL:] if log is not None and there else ""
    return load_backend(arm.backend).explain(tail)
