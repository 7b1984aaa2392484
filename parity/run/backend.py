"""What an adapter is: what every backend has, and what one may have besides. `adapters.py` finds them by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from parity.messages import Message, Say, within
from parity.records import Json
from parity.records.deployment import Deployment
from parity.run.checks import Check
from parity.run.envs import EnvSpec

Ask = Callable[[str], str]
"""Runs Python source on a host and returns what it prints."""


@dataclass(frozen=True, slots=True)
class Detection:
    """What an adapter found on this machine, without importing an engine.

    `looked_for` has one line per place looked at, `details` what was there (versions, devices).
    """

    available: bool
    looked_for: tuple[Message | str, ...] = ()
    details: Mapping[str, Json] = field(default_factory=dict)
    hint: Message | str | None = None


@runtime_checkable
class Backend(Protocol):
    """Hardware and the way to reach an engine on it. Constructing one must import no engine."""

    name: str
    variants: tuple[str, ...]

    def default_model(self) -> Path | None:
        """The checkpoint directory to use when the user names none; None: the user must name one."""
        ...

    def engine_defaults(self, variant: str, *, num_speculative_tokens: int) -> dict[str, Json]:
        """Keyword arguments for `vllm.LLM`, without `model`, every numerics-relevant one pinned.

        Raises ParityError for an unknown variant.
        """
        ...

    def env_defaults(self, variant: str) -> dict[str, str]:
        """Environment variables that belong into the plan (machine-independent ones only)."""
        ...

    def env_spec(self) -> EnvSpec | None:
        """The environment that parity can build for this backend; None where it cannot."""
        ...

    def detect(self) -> Detection:
        """Look for hardware and engine here; never raises, never imports an engine."""
        ...

    def interpreter(self, say: Say) -> Path:
        """The Python that has the engine; may build an environment, and says so.

        Raises BackendError naming what was looked for and how to point elsewhere.
        """
        ...

    def launch_env(self, interpreter: Path) -> dict[str, str]:
        """Environment variables that only this machine knows (such as LD_PRELOAD)."""
        ...

    def worker_source(self) -> bytes:
        """The text of the one-file worker that travels with the request."""
        ...

    def plant(self, fault: str) -> dict[str, str]:
        """Environment variables that plant a named fault (`NAME[:rate=R][:seed=N]`) in an arm's engine.

        Machine-independent: they stand in the plan. Raises ParityError for an unknown fault, naming the known.
        """
        ...

    def explain(self, log_tail: str) -> Message | str | None:
        """A remedy for a failure whose engine log ends like this, or None."""
        ...


# ------------------------------------------------------------------ what a backend may have besides


@runtime_checkable
class Restricted(Protocol):
    """A backend that knows of settings its engine cannot run with."""

    def impossible(self, engine: Mapping[str, Json], config: Mapping[str, Json]) -> Message | None:
        """Why no engine of this backend could run with these arguments, in one sentence; None where one could.

        `config`: the checkpoint's config.json.
        """
        ...


@runtime_checkable
class Foreseeing(Protocol):
    """A backend that knows mistakes in what its engine is asked before one starts."""

    def foresee(self, engine: Mapping[str, Json], model: Path) -> None:
        """Raises ParityError for a name that no release has, for speculation with a checkpoint that has no layers for
        it, and the like. `model`: the checkpoint's directory here."""
        ...


@runtime_checkable
class Checking(Protocol):
    """A backend that knows what values its engine's arguments take."""

    def check_values(self, engine: Mapping[str, Json]) -> None:
        """Raises ParityError for a value that an argument cannot take, such as text for a number. Asked before
        anything is made of the values."""
        ...


@runtime_checkable
class Answering(Protocol):
    """A backend whose arms can be asked, before anything runs, whether they answer."""

    def ask(self, settings: Mapping[str, Json]) -> None:
        """Raises ParityError where what is wrong lies here (a key that is not set), BackendError where it does not
        answer. `settings`: those of an arm."""
        ...


@runtime_checkable
class Recorded(Protocol):
    """A backend whose arms have given their answers long ago."""

    def check_answers(self, settings: Mapping[str, Json], plan: Mapping[str, Json]) -> None:
        """Raises ParityError for the first thing that is asked and has no answer: another model, another prompt, other
        sampling parameters. `settings`: those of an arm; `plan`: as a worker gets it."""
        ...


@runtime_checkable
class OfRelease(Protocol):
    """A backend whose engine cannot run everything in some of its releases."""

    distributions: tuple[str, ...]
    """Names of the packages whose versions say which release it is."""

    def impossible_at(
        self, versions: Mapping[str, str], engine: Mapping[str, Json], config: Mapping[str, Json]
    ) -> Message | None:
        """As `impossible`, with these versions of `distributions`; the versions come from another host."""
        ...


@runtime_checkable
class Recording(Protocol):
    """A backend whose engine records its steps where somebody else starts it."""

    def recorder_plugin(self) -> bytes:
        """A zip file for the engine's PYTHONPATH (docs/steps.md)."""
        ...


@runtime_checkable
class OfCheckpoint(Protocol):
    """A backend whose engine needs other arguments for some checkpoints."""

    def for_checkpoint(self, engine: Mapping[str, Json], config: Mapping[str, Json]) -> dict[str, Json]:
        """These arguments with what a checkpoint of this config.json needs; those that were asked for stay."""
        ...


@runtime_checkable
class Seeded(Protocol):
    """A backend whose engine needs other arguments where requests are sampled with seeds."""

    def for_seeds(self, engine: Mapping[str, Json]) -> dict[str, Json]:
        """These arguments with what is needed then; they are complete, max_model_len among them."""
        ...


@runtime_checkable
class Dear(Protocol):
    """A backend whose engine takes long to start, on hardware that others wait for: rehearsed where it never ran."""

    dear: bool


@dataclass(frozen=True, slots=True)
class Kit:
    """What `parity kit` takes along for a backend, and how its program knows the right machine."""

    program: bytes
    """A file of Python that the target's interpreter runs; the worker and the plan lie beside it."""
    modules: tuple[str, ...]
    """What that interpreter must be able to import."""
    devices: str = ""
    """Pattern of the device files of such a machine; empty where any machine will do."""
    tool: tuple[str, ...] = ()
    """The vendor's command that lists devices."""
    hardware: str = ""


@runtime_checkable
class Portable(Protocol):
    """A backend whose engine may be run by somebody who has no parity."""

    def kit(self) -> Kit: ...


@runtime_checkable
class Deployable(Protocol):
    """A backend whose engine people run in production: it has the variant `deployed`."""

    def deployment(self, source: str) -> Deployment:
        """What a command line, a recipe file or the URL of a server asks of the engine there. Raises ParityError."""
        ...


@runtime_checkable
class OwnSettings(Protocol):
    """A backend whose arms have settings of its own (a URL, a file), not arguments of `vllm.LLM`.

    parity pins nothing in them, and `--engine`, `--vary` and `-k` do not reach them.
    """

    takes_images: bool
    """Whether a request may have image parts in its messages."""
    loads_weights: bool
    """Whether the checkpoint's weights must be here; config.json and tokenizer.json always must."""
    answers_anew: bool
    """Whether it can be asked what it was not asked before; a recording cannot."""

    def arm_settings(self, given: Mapping[str, Json]) -> dict[str, Json]:
        """All settings of an arm from those given. Raises ParityError for one that is unknown or no good."""
        ...


@runtime_checkable
class TakesUsual(Protocol):
    """A backend with settings of its own that may be asked for what the user did not ask for."""

    takes_usual: bool
    """Whether it takes the usual values of sampling parameters (`Parameter.usual`). A server may answer what it does
    not expect with an error, and a run must not end for what nobody asked for."""


@runtime_checkable
class Versioned(Protocol):
    """A backend that can run on other versions of its engine: `cpu@0.29.0`."""

    def at_version(self, version: str) -> Backend:
        """The same backend on that version, named `NAME@VERSION`. Raises ParityError where there is none."""
        ...

    def known_versions(self) -> list[str]:
        """Versions whose environments can be built as they were, oldest first."""
        ...


@runtime_checkable
class HoldsMemory(Protocol):
    """A backend whose engines take most of a device's memory, which may come back later than they end."""

    memory_signs: tuple[str, ...]
    """Pieces of log text with which an engine says that this memory was not free when it started."""


@runtime_checkable
class LoadsAhead(Protocol):
    """A backend whose engine's code may be loaded while another engine runs: that touches no device."""

    loads_ahead: bool


@runtime_checkable
class Hinting(Protocol):
    """A backend whose worker ends with sentences of its own."""

    hints: Mapping[str, Message]
    """What to do, by the id of the sentence."""


@runtime_checkable
class Patient(Protocol):
    """A backend whose engine needs longer than others to say what hangs."""

    stall_seconds: float
    """So long a working engine may say nothing, at least, where the host says nothing else."""


@runtime_checkable
class HasDevices(Protocol):
    """A backend whose engine can be given devices of the machine."""

    device_variable: str
    """The environment variable that chooses the devices a process sees."""


@runtime_checkable
class Remote(Protocol):
    """A backend whose engine can be started on another host."""

    far_modules: tuple[str, ...]
    """What the interpreter there must be able to import."""

    def far_env(self, ask: Ask) -> dict[str, str]:
        """Environment variables that only that machine knows; `ask` asks it. The answer is untrusted."""
        ...


@runtime_checkable
class Examinable(Protocol):
    """A backend whose host can be looked at."""

    def probe(self) -> tuple[str, Sequence[str]]:
        """A program for the host (standard library, Python 3.9) that prints JSON, and its first arguments."""
        ...

    def examined_python(self) -> Path | None:
        """The interpreter to look at on this machine; None where there is none yet."""
        ...

    def judge(self, facts: Mapping[str, Json]) -> list[Check]:
        """What the answers mean. They come from another host: strings are not to be trusted."""
        ...


def impossible(backend: Backend, engine: Mapping[str, Json], config: Mapping[str, Json]) -> Message | None:
    """What the adapter says about these settings for this checkpoint; one that says nothing takes everything."""
    return backend.impossible(engine, config) if isinstance(backend, Restricted) else None


def hint_for(backend: Backend, said: Message) -> Message | None:
    """What the adapter says to do about a failure by its sentences; None where it has nothing for these."""
    hints = backend.hints if isinstance(backend, Hinting) else {}
    return next((hints[one.id] for one in within(said) if one.id in hints), None)
