"""The plan: what every arm is asked, as frozen types and as the JSON file `parity.plan/1`.

docs/plan.md describes the file. Reading checks every field and names the one that is wrong.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import parity
from parity.errors import ParityError
from parity.plan.churn import Churn
from parity.plan.messages import Messages, has_images, parse_messages
from parity.records import DEFAULT_TOLERANCE, Json

SCHEMA: Final = "parity.plan/1"

SCORE_MODES: Final = ("all", "differing", "none")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@-]*/[A-Za-z0-9][A-Za-z0-9._+=-]*")


@dataclass(frozen=True, slots=True)
class Sampling:
    """Every sampling parameter, none left to a default of an engine or a checkpoint."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    max_tokens: int = 128
    min_tokens: int = 0
    n: int = 1
    seed: int | None = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None

    def check(self) -> None:
        """Raises ParityError for a combination that an engine would refuse or that makes no sense."""
        if self.max_tokens < 1:
            raise ParityError(f"max_tokens is {self.max_tokens}", hint="ask for at least one token")
        if self.n < 1:
            raise ParityError(f"n is {self.n}", hint="ask for at least one sample")
        if self.temperature < 0:
            raise ParityError(f"temperature is {self.temperature:g}", hint="0 is greedy, more is sampling")
        if self.temperature == 0 and self.n > 1:
            raise ParityError(
                f"n is {self.n} with temperature 0: greedy decoding gives the same sample {self.n} times",
                hint="set --temperature above 0, or repeat the whole batch with --rounds",
            )
        if self.logprobs is not None and not 0 <= self.logprobs <= 20:
            raise ParityError(f"logprobs is {self.logprobs}", hint="engines give 0 to 20; leave it out for none")


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt. Every arm gets these token ids; `prompt` is the text they came from, for people."""

    id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    max_tokens: int | None = None
    """A limit of its own, below the plan's: output lengths are mixed. None: the plan's."""
    messages: Messages | None = None
    """The chat messages it came from, for backends that take them; `prompt_token_ids` are of their text."""

    @property
    def has_images(self) -> bool:
        return has_images(self.messages)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A combination of settings that was asked for and cannot run, and why."""

    arm: str
    reason: str


@dataclass(frozen=True, slots=True)
class Arm:
    """One backend with one variant. `engine` holds the keyword arguments of `vllm.LLM` without the model."""

    name: str
    backend: str
    variant: str
    engine: Mapping[str, Json] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    control: str | None = None
    """The fault planted in this arm's engine on purpose: a positive control, which must be found."""


@dataclass(frozen=True, slots=True)
class Model:
    """The checkpoint. `fingerprint` maps a part ("config.json", "weights", …) to its SHA-256."""

    name: str
    path: str
    fingerprint: Mapping[str, str]
    vocab_size: int | None
    eos_token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """Which candidate completions the baseline teacher-forces, and how many top logprobs it gives."""

    mode: str = "all"
    top: int = 5


@dataclass(frozen=True, slots=True)
class Plan:
    model: Model
    requests: tuple[Request, ...]
    arms: tuple[Arm, ...]
    baseline: str
    sampling: Sampling = Sampling()
    rounds: int = 1
    score: Score = Score()
    tolerance: float | str = DEFAULT_TOLERANCE
    parity: str = parity.__version__
    churn: Churn = field(default_factory=Churn)
    skipped: tuple[Skipped, ...] = ()
    arbiter: Arm | None = None
    """An engine that is no arm and scores both sides where they differ."""

    def arm(self, name: str) -> Arm:
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise KeyError(name)

    @property
    def candidates(self) -> tuple[Arm, ...]:
        return tuple(arm for arm in self.arms if arm.name != self.baseline)

    @property
    def expected_completions(self) -> int:
        """Completions that each arm must give."""
        return len(self.requests) * self.rounds * self.sampling.n

    def with_model_path(self, path: str | Path) -> Plan:
        return replace(self, model=replace(self.model, path=str(path)))

    def to_json(self) -> dict[str, Json]:
        return {
            "schema": SCHEMA,
            "parity": self.parity,
            "model": _as_json(self.model),
            "rounds": self.rounds,
            "sampling": _as_json(self.sampling),
            "requests": [
                {
                    "id": r.id,
                    "prompt": r.prompt,
                    "prompt_token_ids": list(r.prompt_token_ids),
                    **({} if r.max_tokens is None else {"max_tokens": r.max_tokens}),
                    **({} if r.messages is None else {"messages": [dict(one) for one in r.messages]}),
                }
                for r in self.requests
            ],
            "arms": [_arm_json(arm) for arm in self.arms],
            **({} if self.arbiter is None else {"arbiter": _arm_json(self.arbiter)}),
            "baseline": self.baseline,
            "score": asdict(self.score),
            "tolerance": self.tolerance,
            **({} if self.churn == Churn() else {"churn": self.churn.to_json()}),
            **({"skipped": [asdict(one) for one in self.skipped]} if self.skipped else {}),
        }

    def check(self) -> None:
        """Raises ParityError where the parts do not fit together."""
        self.sampling.check()
        if not self.requests:
            raise ParityError("the plan has no requests", hint="give it at least one prompt")
        if self.rounds < 1:
            raise ParityError(f"rounds is {self.rounds}", hint="ask for at least one round")
        for what, names in (
            ("request", [r.id for r in self.requests]),
            ("arm", [arm.name for arm in self.arms]),
        ):
            repeated = [name for name, count in Counter(names).items() if count > 1]
            if repeated:
                raise ParityError(
                    f"the plan names the {what} {repeated[0]!r} twice", hint=f"give every {what} its own name"
                )
        for request in self.requests:
            if not request.prompt_token_ids:
                raise ParityError(f"request {request.id!r} has no tokens", hint="remove the empty prompt")
            bad = [t for t in request.prompt_token_ids if t < 0 or t >= (self.model.vocab_size or 2**31)]
            if bad:
                raise ParityError(
                    f"request {request.id!r} has the token id {bad[0]}, outside the model's vocabulary of "
                    f"{self.model.vocab_size}",
                    hint="these prompt_token_ids were made with another tokenizer",
                )
            if request.max_tokens is not None and not 1 <= request.max_tokens <= self.sampling.max_tokens:
                raise ParityError(
                    f"request {request.id!r} has max_tokens {request.max_tokens}, the plan {self.sampling.max_tokens}",
                    hint="a request's own limit is from 1 to the plan's",
                )
        self.churn.check(frozenset(r.id for r in self.requests), self.sampling.n)
        names = [arm.name for arm in self.arms]
        if self.baseline not in names:
            raise ParityError(
                f"the baseline {self.baseline!r} is none of the arms {', '.join(names)}",
                hint="name one of them with --baseline",
            )
        if len(self.arms) < 2:
            raise ParityError(
                f"there is only one arm, {names[0]}: nothing to compare it with",
                hint="add a variant (--variants base,mtp) or a backend (--backends cpu,cuda)",
            )

    @staticmethod
    def from_json(value: Json, source: str = "plan") -> Plan:
        """A checked plan from parsed JSON. Raises ParityError that names `source` and the field."""
        top = _Fields(value, source, "")
        schema = top.take("schema", _string, default=None)
        if schema != SCHEMA:
            raise ParityError(
                f"{source}: schema is {schema!r}, this parity reads {SCHEMA!r}",
                hint="write the plan again with `parity plan`",
            )
        model = top.sub("model")
        score = top.sub("score", default={})
        mode = score.take("mode", _string, default="all")
        if mode not in SCORE_MODES:
            raise score.error("mode", f"is {mode!r}, not one of {', '.join(SCORE_MODES)}")
        plan = Plan(
            model=Model(
                name=model.take("name", _string),
                path=model.take("path", _string),
                fingerprint=model.take("fingerprint", _string_map, default={}),
                vocab_size=model.take("vocab_size", _optional_int, default=None),
                eos_token_ids=model.take("eos_token_ids", _ints, default=()),
            ),
            requests=tuple(_request(item) for item in top.items("requests")),
            arms=tuple(_arm(item) for item in top.items("arms")),
            baseline=top.take("baseline", _string),
            sampling=_sampling(top.sub("sampling")),
            rounds=top.take("rounds", _int, default=1),
            score=Score(mode, score.take("top", _int, default=5)),
            tolerance=top.take("tolerance", parse_tolerance, default=DEFAULT_TOLERANCE),
            parity=top.take("parity", _string, default=""),
            arbiter=None if top.value.get("arbiter") is None else _arm(top.sub("arbiter")),
            churn=top.take("churn", Churn.from_json, default=Churn()),
            skipped=tuple(
                Skipped(item.take("arm", _string), item.take("reason", _string))
                for item in top.items("skipped", default=[])
            ),
        )
        try:
            plan.check()
        except ParityError as error:
            raise ParityError(f"{source}: {error.message}", hint=error.hint) from None
        return plan


def _arm_json(arm: Arm) -> dict[str, Json]:
    return {
        "name": arm.name,
        "backend": arm.backend,
        "variant": arm.variant,
        "engine": dict(arm.engine),
        "env": dict(arm.env),
        **({"control": arm.control} if arm.control else {}),
    }


def _as_json(value: Model | Sampling) -> dict[str, Json]:
    """As json.loads would give it back: lists, not tuples, so that plans in memory and on disk are equal."""
    return {name: list(item) if isinstance(item, tuple) else item for name, item in asdict(value).items()}


def parse_tolerance(value: Json) -> float | str:
    """Nats as a number, or "auto". Raises ValueError."""
    if value == "auto":
        return "auto"
    number = _float(float(value) if isinstance(value, str) else value)
    if not 0 <= number < float("inf"):
        raise ValueError("must be a number of nats, 0 or more, or auto")
    return number


def read_plan(path: str | Path) -> Plan:
    """Read and check a plan file. Raises ParityError naming the file and the field."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ParityError(
            f"cannot read the plan {path}: {error.strerror}", hint="write one with `parity plan -o FILE`"
        ) from error
    except UnicodeDecodeError as error:
        raise ParityError(f"{path} is not UTF-8 text: {error.reason}", hint="is it a plan file?") from error
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParityError(f"{path} is not JSON: {error}", hint="is it a plan file?") from error
    return Plan.from_json(value, str(path))


# --------------------------------------------------------------------------- reading fields

_MISSING: Final = object()


class _Fields:
    """A JSON object whose fields are taken one by one, each mistake naming file and field."""

    def __init__(self, value: Json, source: str, at: str) -> None:
        self.source, self.at = source, at
        if not isinstance(value, dict):
            raise ParityError(
                f"{source}: {at or 'the file'} must be a JSON object, not {type(value).__name__}",
                hint="is it a plan file?",
            )
        self.value: dict[str, Json] = value

    def error(self, name: str, problem: str) -> ParityError:
        where = f"{self.at}.{name}" if self.at else name
        return ParityError(f"{self.source}: {where} {problem}", hint="correct the field, or write the plan again")

    def take(self, name: str, parse: Callable[[Json], Any], default: Any = _MISSING) -> Any:
        if name not in self.value:
            if default is _MISSING:
                raise self.error(name, "is missing")
            return default
        try:
            return parse(self.value[name])
        except (TypeError, ValueError) as error:
            raise self.error(name, str(error)) from None

    def sub(self, name: str, default: Any = _MISSING) -> _Fields:
        where = f"{self.at}.{name}" if self.at else name
        return _Fields(self.take(name, lambda value: value, default), self.source, where)

    def items(self, name: str, default: Any = _MISSING) -> list[_Fields]:
        value = self.take(name, _list, default)
        return [_Fields(item, self.source, f"{name}[{index}]") for index, item in enumerate(value)]


def _request(item: _Fields) -> Request:
    return Request(
        id=item.take("id", _string),
        prompt=item.take("prompt", _optional_string, default=None),
        prompt_token_ids=item.take("prompt_token_ids", _ints),
        max_tokens=item.take("max_tokens", _optional_int, default=None),
        messages=item.take("messages", lambda value: None if value is None else parse_messages(value), default=None),
    )


def _arm(item: _Fields) -> Arm:
    arm = Arm(
        name=item.take("name", _string),
        backend=item.take("backend", _string),
        variant=item.take("variant", _string),
        engine=item.sub("engine", default={}).value,
        env=item.take("env", _string_map, default={}),
        control=item.take("control", _optional_string, default=None),
    )
    # The name becomes a file name in the run directory, and plans come from other hosts.
    if not _NAME.fullmatch(arm.name):
        raise item.error("name", f"is {arm.name!r}, not of the form backend/variant")
    return arm


def _sampling(item: _Fields) -> Sampling:
    base = Sampling()
    parsers: dict[str, Callable[[Json], Any]] = {
        "temperature": _float,
        "top_p": _float,
        "top_k": _int,
        "min_p": _float,
        "repetition_penalty": _float,
        "presence_penalty": _float,
        "frequency_penalty": _float,
        "max_tokens": _int,
        "min_tokens": _int,
        "n": _int,
        "seed": _optional_int,
        "stop": _strings,
        "stop_token_ids": _ints,
        "ignore_eos": _bool,
        "skip_special_tokens": _bool,
        "logprobs": _optional_int,
    }
    unknown = sorted(set(item.value) - set(parsers))
    if unknown:
        raise item.error(unknown[0], f"is not a sampling parameter this parity knows ({', '.join(parsers)})")
    return Sampling(**{name: item.take(name, parse, getattr(base, name)) for name, parse in parsers.items()})


def _string(value: Json) -> str:
    if not isinstance(value, str):
        raise TypeError(f"must be a string, not {json.dumps(value)[:60]}")
    return value


def _optional_string(value: Json) -> str | None:
    return None if value is None else _string(value)


def _int(value: Json) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"must be a whole number, not {json.dumps(value)[:60]}")
    return value


def _optional_int(value: Json) -> int | None:
    return None if value is None else _int(value)


def _float(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"must be a number, not {json.dumps(value)[:60]}")
    return float(value)


def _bool(value: Json) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"must be true or false, not {json.dumps(value)[:60]}")
    return value


def _list(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise TypeError(f"must be a list, not {json.dumps(value)[:60]}")
    return value


def _ints(value: Json) -> tuple[int, ...]:
    return tuple(_int(item) for item in _list(value))


def _strings(value: Json) -> tuple[str, ...]:
    return tuple(_string(item) for item in _list(value))


def _string_map(value: Json) -> dict[str, str]:
    if not isinstance(value, dict):
        raise TypeError(f"must be an object of strings, not {json.dumps(value)[:60]}")
    return {name: _string(item) for name, item in value.items()}
