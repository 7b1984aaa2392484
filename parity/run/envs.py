"""Engine environments: isolated virtual environments that hold an engine, apart from parity's own.

An environment is finished when its marker file is there; the marker is written last, so an interrupted
creation leaves nothing that looks finished, and the next creation starts by removing the leftovers. It is
built in place (virtual environments do not survive being moved) under a file lock.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from parity.errors import BackendError, ParityError, writing
from parity.locks import lock, lock_now
from parity.messages import Message, Say, message, verbatim
from parity.paths import data_dir
from parity.run.installing import INDEX_VARIABLE, run_logged

MARKER = "parity-env.json"


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """What an environment holds.

    `engine` is (distribution, version), `pins` every other distribution as `name==version`; nothing that
    is not listed is installed (`pip --no-deps`). Those named in `special` are looked for at the configured
    index first and then, once, at `special_index`. `overlay` are files that parity brings along: path below
    site-packages, and text; where they alone have changed they are written anew. `verify` is Python that must run at
    the end.
    """

    name: str
    engine: tuple[str, str]
    pins: tuple[str, ...]
    special: tuple[str, ...] = ()
    special_index: str | None = None
    verify: str = "pass"
    overlay: tuple[tuple[str, str], ...] = ()

    def digest(self) -> str:
        """Changes when anything that is installed changes."""
        return hashlib.sha256(json.dumps([self.engine, sorted(self.pins)]).encode()).hexdigest()[:16]

    def overlay_digest(self) -> str | None:
        """Changes when a file that parity brings along changes; None where there is none."""
        if not self.overlay:
            return None
        return hashlib.sha256(json.dumps(sorted(self.overlay)).encode()).hexdigest()[:16]


@dataclass
class EngineEnv:
    """The environment of a spec under a root directory (default: `envs/` in the data directory)."""

    spec: EnvSpec
    base: Path = field(default_factory=lambda: envs_dir())

    @property
    def root(self) -> Path:
        return self.base / self.spec.name

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"

    @property
    def log(self) -> Path:
        """Everything pip said during the last creation; it outlives a failed one."""
        return self.base / f"{self.spec.name}.log"

    def marker(self) -> Finished | None:
        return read_marker(self.root)

    def ready(self) -> bool:
        """Whether it is finished, what the spec asks for, and its Python still exists."""
        marker = self.marker()
        return marker is not None and self.installed() and marker.overlay == self.spec.overlay_digest()

    def installed(self) -> bool:
        """Ready but for the files that parity brings along."""
        marker = self.marker()
        return marker is not None and marker.digest == self.spec.digest() and os.access(self.python, os.X_OK)

    def state(self) -> Message:
        """In words."""
        if not self.root.exists():
            return message("run.env_absent", "not there")
        marker = self.marker()
        if marker is None:
            return message("run.env_unfinished", "unfinished (an interrupted creation)")
        if marker.digest != self.spec.digest():
            return message("run.env_other", "made for other versions")
        if not os.access(self.python, os.X_OK):
            return message("run.env_no_python", "its Python is gone")
        if not self.ready():
            return message("run.env_overlay", "its files are those of another parity")
        return message("run.env_ready", "ready")

    def versions(self) -> dict[str, str]:
        """Versions written down when it was made."""
        marker = self.marker()
        return {} if marker is None else marker.versions

    def create(
        self,
        *,
        say: Say,
        python: Path | None = None,
        extra_index_url: str | None = None,
        force: bool = False,
    ) -> bool:
        """Build it unless it is ready; True when it was built.

        `python` is the interpreter to build from (default: this one), `extra_index_url` a package index
        used from the start. Raises BackendError with the end of pip's output; nothing is left behind then
        but the log.
        """
        with _locked(self.base / f".{self.spec.name}.lock", say):
            if self.ready() and not force:
                return False
            made = self.marker()
            if made is not None and self.installed() and not force:
                say(message("run.env_overlaying", "{root}: writing parity's own files anew", root=str(self.root)))
                self._overlay()
                self._mark(msgspec.structs.replace(made, overlay=self.spec.overlay_digest()))
                return True
            if self.root.exists():
                say(message("run.removing", "removing {root}: {state}", root=str(self.root), state=self.state()))
                _remove(self.root)
            try:
                self._build(say, python or Path(sys.executable), extra_index_url)
            except BaseException:
                shutil.rmtree(self.root, ignore_errors=True)
                raise
        return True

    def remove(self, say: Say) -> bool:
        """Delete it; False when there was none."""
        with _locked(self.base / f".{self.spec.name}.lock", say):
            if not self.root.exists():
                return False
            _remove(self.root)
            return True

    # ------------------------------------------------------------------ building

    def _build(self, say: Say, python: Path, extra_index_url: str | None) -> None:
        began = time.monotonic()
        index = extra_index_url or os.environ.get(INDEX_VARIABLE)
        with writing(self.base, message("run.set_parity_home", "set PARITY_HOME to another place")):
            self.base.mkdir(parents=True, exist_ok=True)
            self.log.write_bytes(b"")
        special = [pin for pin in self.spec.pins if _name(pin) in self.spec.special]
        rest = [pin for pin in self.spec.pins if pin not in special]
        engine = "==".join(self.spec.engine)
        stages = 4
        say(
            message(
                "run.virtual_environment",
                "[1/{stages}] a virtual environment in {root}, from {python}",
                stages=stages,
                root=str(self.root),
                python=str(python),
            )
        )
        self._run(
            [str(python), "-m", "venv", "--clear", str(self.root)],
            say,
            message("run.creating_environment", "creating the virtual environment"),
        )
        # The engine by itself: a version that no index has is found before gigabytes are fetched for it.
        say(message("run.stage_engine", "[2/{stages}] {engine}", stages=stages, engine=engine))
        self._pip([engine], say, index)
        say(
            message(
                "run.packages_it_needs",
                "[3/{stages}] {count} packages it needs{special}",
                stages=stages,
                count=len(self.spec.pins),
                special=verbatim(f": {', '.join(special)} first") if special else "",
            )
        )
        if special:
            self._install_special(special, index, say)
        if rest:
            self._pip(rest, say, index)
        self._overlay()
        importing = message("run.importing", "importing the engine")
        say(message("run.importing_engine", "[4/{stages}] {importing}", stages=stages, importing=importing))
        self._run([str(self.python), "-c", self.spec.verify], say, importing)
        self._mark(
            Finished(
                name=self.spec.name,
                digest=self.spec.digest(),
                engine=list(self.spec.engine),
                versions=self._versions(special, engine),
                created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                seconds=round(time.monotonic() - began, 1),
                overlay=self.spec.overlay_digest() if self.spec.overlay else None,
            )
        )
        say(
            message(
                "run.environment_ready_after",
                "environment {spec!r} is ready after {seconds:.0f} s",
                spec=self.spec.name,
                seconds=time.monotonic() - began,
            )
        )

    def _mark(self, marker: Finished) -> None:
        unfinished = self.root / (MARKER + ".tmp")
        unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(marker), indent=1) + b"\n")
        unfinished.replace(self.root / MARKER)

    def _overlay(self) -> None:
        """Write the files that parity brings along."""
        for site in self.root.glob("lib/python*/site-packages"):
            for name, text in self.spec.overlay:
                path = site / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")

    def _versions(self, special: Sequence[str], engine: str) -> dict[str, str]:
        code = "import platform; print(platform.python_version())"
        done = subprocess.run([str(self.python), "-c", code], capture_output=True, text=True, timeout=60, check=True)
        pins = dict(pin.split("==", 1) for pin in [*special, engine] if "==" in pin)
        return {"python": done.stdout.strip(), **pins}

    def _install_special(self, pins: Sequence[str], index: str | None, say: Say) -> None:
        try:
            self._pip(pins, say, index)
        except BackendError:
            missing = "No matching distribution found" in self.log.read_text(encoding="utf-8", errors="replace")
            if index or not missing or not self.spec.special_index:
                raise
            say(
                message(
                    "run.not_configured_package",
                    "not at the configured package index: trying {special_index}",
                    special_index=self.spec.special_index,
                )
            )
            self._pip(pins, say, self.spec.special_index)

    def _pip(self, pins: Sequence[str], say: Say, index: str | None) -> None:
        command = [
            str(self.python),
            "-m",
            "pip",
            "install",
            "--no-deps",
            "--no-compile",  # the import at the end compiles what is used, a fraction of it
            "--no-input",
            "--progress-bar",
            "off",
        ]
        command += ["--disable-pip-version-check"]
        if index:
            command += ["--extra-index-url", index]
        self._run([*command, *pins], say, verbatim("pip install"))

    def _run(self, command: Sequence[str], say: Say, doing: Message) -> None:
        run_logged(command, self.log, say, doing, self.spec.special_index)


def envs_dir() -> Path:
    """Where environments live."""
    return data_dir() / "envs"


class Finished(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is written down of an environment when it is finished."""

    name: str = ""
    digest: str | None = None
    """Of what it was asked to hold."""
    engine: list[str] = []
    versions: dict[str, str] = {}
    created: str = ""
    seconds: float = 0.0
    overlay: str | None = None
    """Digest of the files that parity brought along."""


def read_marker(root: Path) -> Finished | None:
    """What was written down when the environment at `root` was finished; None when it is not finished."""
    try:
        return msgspec.json.decode((root / MARKER).read_bytes(), type=Finished)
    except (OSError, ValueError):
        return None


def list_envs(base: Path | None = None) -> list[tuple[Path, Finished | None]]:
    """Directory and marker of each environment there is, finished or not, by name."""
    base = base or envs_dir()
    if not base.is_dir():
        return []
    return [(root, read_marker(root)) for root in sorted(base.iterdir()) if root.is_dir()]


def _name(pin: str) -> str:
    return pin.split("==", 1)[0].strip().lower()


def _remove(root: Path) -> None:
    # The marker first: a removal that is interrupted leaves nothing that looks finished either.
    (root / MARKER).unlink(missing_ok=True)
    try:
        shutil.rmtree(root)
    except OSError as error:
        raise ParityError(
            message("run.cannot_remove", "cannot remove {root}: {strerror}", root=str(root), strerror=error.strerror),
            hint=message("run.remove_hand", "remove it by hand"),
        ) from error


@contextmanager
def _locked(path: Path, say: Say) -> Iterator[None]:
    """One creator at a time; the second waits and says so. The lock goes with the process and with the commands that it
    started: one that outlives it (`kill -9`) still writes there."""
    with writing(path, message("run.set_parity_home", "set PARITY_HOME to another place")):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    with file:
        os.set_inheritable(file.fileno(), True)
        if not lock_now(file.fileno()):
            say(message("run.another_parity_working", "another parity is working on this environment: waiting for it"))
            lock(file.fileno())
        yield
