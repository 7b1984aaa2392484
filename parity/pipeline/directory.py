"""The directory of a run: plan, captures, scores, logs, result. It alone is enough to resume a run."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import orjson

from parity.errors import ParityError, reading, writing
from parity.files import is_file, leads_to, read_whole
from parity.locks import lock_now
from parity.messages import Say, message
from parity.paths import expanded, make_private, runs_dir
from parity.plan import Plan, read_plan
from parity.plan.hosts import Host
from parity.plan.trusting import hosts_to_use, plan_to_run
from parity.records import Json
from parity.records.objects import object_of
from parity.trust import Trust, remember, trust_in

_PART = ".part"
"""How the name of a file ends that is being written."""

MAX_ABOUT_BYTES = 16 << 20
"""Of what a directory says of its run."""


def new_run_id() -> str:
    """Time and four random hex digits: sorts by time, unique among runs started in the same second."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


@dataclass(frozen=True, slots=True)
class About:
    """What a run's directory says of the run, for whoever continues it; it may be anybody's."""

    run: str
    hosts: Json = None
    """Of each backend, as tables of a configuration."""
    db: str | None = None
    checkout: str | None = None
    """Of vllm-ascend, which the emulated NPU ran in the place of the release."""
    command: str | None = None
    """The command line that made it."""


class RunDirectory:
    """Paths inside `root`, whose name is the run's id unless the directory says otherwise (`run.json`)."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def create(cls, plan: Plan, run_id: str, root: Path | None, about: dict[str, Json]) -> RunDirectory:
        """A new directory with the plan in it. Raises ParityError where it cannot be written or is taken."""
        directory = cls(expanded(root or runs_dir() / run_id).absolute())
        with writing(
            directory.root,
            message(
                "pipeline.name_writable_place",
                "name a writable place with enough room with --out DIR or PARITY_HOME",
            ),
        ):
            make_private(directory.root)
            if any(directory.root.iterdir()):
                raise ParityError(
                    message(
                        "pipeline.run_directory_not", "the run directory {root} is not empty", root=str(directory.root)
                    ),
                    hint=message(
                        "pipeline.name_another_one",
                        "name another one with --out, or continue that run with --resume --out DIR",
                    ),
                )
            directory.logs.mkdir()
            write_json(directory.about, {"run": run_id, **about})
            write_plan(directory.plan_file, plan)  # last: a directory with a plan is complete
            remember(directory.about)
        return directory

    @classmethod
    def open(cls, root: Path) -> RunDirectory:
        directory = cls(expanded(root).absolute())
        if not is_file(directory.plan_file):
            raise ParityError(
                message(
                    "pipeline.not_run_directory",
                    "{root} is not a run directory: it has no plan.json",
                    root=str(directory.root),
                ),
                hint=message(
                    "pipeline.names_runs_out", "`parity runs list` names the runs; --out names a run's directory"
                ),
            )
        return directory

    @property
    def is_own(self) -> bool:
        """Whether it lies among parity's own runs, wherever a link leads: only there anything is deleted."""
        own, here = runs_dir().resolve(), leads_to(self.root)
        return here is not None and here.is_relative_to(own) and here != own

    @property
    def plan_file(self) -> Path:
        return self.root / "plan.json"

    @property
    def about(self) -> Path:
        return self.root / "run.json"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def scores(self) -> Path:
        return self.root / "scores.jsonl"

    @property
    def crossings_asked(self) -> Path:
        """Which completions the baseline was to score after the text of other requests."""
        return self.root / "crossings.json"

    @property
    def crossings(self) -> Path:
        """These scores."""
        return self.root / "crossings.jsonl"

    @property
    def arbiter(self) -> Path:
        """Scores of both sides by an engine that is no arm."""
        return self.root / "arbiter.jsonl"

    @property
    def result(self) -> Path:
        """Written when the run is over; a directory without it can be resumed."""
        return self.root / "result.json"

    def capture(self, arm: str) -> Path:
        return self.root / f"{arm.replace('/', '-')}.jsonl"

    def log(self, arm: str) -> Path:
        return self.logs / f"{arm.replace('/', '-')}.log"

    def plan(self) -> Plan:
        return read_plan(self.plan_file)

    def plan_to_run(self, say: Say) -> Plan:
        """The plan, to be run again. Raises ParityError where it would run what nobody trusts."""
        return plan_to_run(self.plan_file, say)

    def hosts(self, say: Say) -> dict[str, Host]:
        """Where the backends of the run were; none beside a plan that is in no run's directory. Raises ParityError."""
        return hosts_to_use(self.describe().hosts, self.about, say)

    def database(self) -> Path | None:
        """The database that the run was started with, where the directory is trusted to name a file to write."""
        named = self.describe().db
        return Path(named) if named is not None and trust_in(self.about) is not Trust.NONE else None

    def keep_plan(self, plan: Plan) -> None:
        """Write the plan again. Raises ParityError where the directory cannot be written."""
        with writing(self.plan_file, message("pipeline.make_run_directory", "make the run directory writable")):
            write_plan(self.plan_file, plan)

    def describe(self) -> About:
        """What `create` was given, as far as the file says it."""
        try:
            value = orjson.loads(read_whole(self.about, MAX_ABOUT_BYTES))
        except (OSError, ValueError):
            value = {}
        said = object_of(value)
        db, checkout, command = (
            name if isinstance(name := said.get(key), str) else None for key in ("db", "checkout", "command")
        )
        return About(str(said.get("run", self.root.name)), said.get("hosts"), db, checkout, command)

    @property
    def run_id(self) -> str:
        return self.describe().run

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process at a time works on a run; the lock goes with the process, however it ends.

        Raises ParityError where another does, and where what is written would lie elsewhere."""
        self._check_places()
        with writing(
            self.root, message("pipeline.make_writable_name", "make it writable, or name another one with --out")
        ):
            handle = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if not lock_now(handle):
                raise ParityError(
                    message(
                        "pipeline.another_parity_working",
                        "another parity is working on the run {run_id}",
                        run_id=self.run_id,
                    ),
                    hint=message("pipeline.wait_end_not", "wait for it to end; it does not need to be resumed"),
                )
            self._sweep()
            yield
        finally:
            os.close(handle)

    def _sweep(self) -> None:
        """Remove what a process that was killed had half written: nobody else writes here now."""
        for whole in (self.plan_file, self.about, self.result, self.crossings_asked):
            for part in self.root.glob(f".{whole.name}.*{_PART}"):
                with contextlib.suppress(OSError):
                    part.unlink()

    def _check_places(self) -> None:
        """A directory from elsewhere must not say where captures and logs are written: no links, pipes, devices."""
        if trust_in(self.about) is not Trust.NONE:
            return
        with reading(self.root):
            folders = [self.root, *([self.logs] if self.logs.is_dir() and not self.logs.is_symlink() else [])]
            odd = [path for one in folders for path in sorted(one.iterdir()) if not _is_plain(path)]
        if odd:
            raise ParityError(
                message(
                    "pipeline.leads_elsewhere",
                    "{path} is a link, a pipe or a device: what is written there would lie elsewhere",
                    path=str(odd[0]),
                ),
                hint=message(
                    "pipeline.remove_or_trust",
                    "remove it; or, where you made it: `parity trust {root}`",
                    root=str(self.root),
                ),
            )

    def in_use(self) -> bool:
        """Is a process working on this run right now?"""
        try:
            handle = os.open(self.root / "lock", os.O_RDWR)
        except (OSError, ValueError):  # also of a name that no system takes: databases say where directories are
            return False
        try:
            return not lock_now(handle)
        finally:
            os.close(handle)


def _is_plain(path: Path) -> bool:
    mode = path.lstat().st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def find_unfinished(run: str | None, stored: Iterable[Path] = ()) -> RunDirectory:
    """The newest unfinished run, the one whose id starts with `run`, or the one in the directory `run`.

    Looked for in the default place and among `stored`, the directories that a database names (a run may
    have been given another place). Raises ParityError when there is none, or several.
    """
    base = runs_dir()
    roots = {path.absolute() for path in (*base.glob("*/"), *stored) if is_file(path / "plan.json")}
    found = sorted(map(RunDirectory, roots), key=lambda directory: directory.run_id, reverse=True)
    if run:
        found = [d for d in found if d.run_id == run] or [d for d in found if d.run_id.startswith(run)]
        if not found and is_file(Path(run) / "plan.json"):
            return RunDirectory(Path(run).absolute())
        if not found:
            raise ParityError(
                message(
                    "pipeline.there_no_run",
                    "there is no run {run!r} in {base}, and no directory of a run of that name here",
                    run=run,
                    base=str(base),
                ),
                hint=message("pipeline.shows_runs", "`parity runs list` shows the runs"),
            )
        if len(found) > 1:
            raise ParityError(
                message(
                    "pipeline.could_any", "{run!r} could be any of {found}", run=run, found=[d.run_id for d in found]
                ),
                hint=message("pipeline.write_more_runs", "write more of the run's id"),
            )
        return found[0]
    for directory in found:
        if not directory.result.exists() and not directory.in_use():
            return directory
    raise ParityError(
        message("pipeline.there_no_unfinished", "there is no unfinished run in {base}", base=str(base)),
        hint=message(
            "pipeline.name_one_resume", "name one with --resume RUN, or its directory with --resume --out DIR"
        ),
    )


def write_plan(path: Path, plan: Plan) -> None:
    """Write a plan file, which may be run from then on. Raises OSError."""
    write_json(path, plan.to_json())
    remember(path)


def write_json(path: Path, value: Json) -> None:
    """Write a JSON file whole or not at all, and surely on the disk. Raises OSError."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    write_whole(path, [orjson.dumps(value, option=options), b"\n"], private=True)


def write_whole(path: Path, pieces: Iterable[bytes], *, private: bool = False) -> None:
    """Write a file piece by piece: all of it or nothing, and surely on the disk. Raises OSError.

    What is no regular file (`-o /dev/null`, a named pipe) is written into: to put a file in its place would
    take the device away. A link stays a link. `private`: a new file is for its owner alone.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as other:
            other.writelines(pieces)
        return
    path = Path(os.path.realpath(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}{_PART}")
    try:
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600 if private else 0o666
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
