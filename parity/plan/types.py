"""The plan: what every arm is asked, as frozen types and as the JSON file `parity.plan/1`.

docs/plan.md describes the file. Reading checks every field and names the one that is wrong.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final

import orjson

from parity._version import __version__
from parity.errors import ParityError, cannot_read
from parity.files import read_whole
from parity.messages import message
from parity.plan.asked import check_request, check_speculation
from parity.plan.churn import Churn
from parity.plan.fields import Read, read, typed
from parity.plan.parts import Arm, Model, Request, Score, Skipped, one_of, run_sampling
from parity.records import DEFAULT_TOLERANCE, Json
from parity.records.depth import DEEPEST_PLAN, is_shallow
from parity.records.engine_settings import speculates
from parity.records.recording import RING
from parity.records.sampling import Sampling

SCHEMA: Final = "parity.plan/1"

MOST_COMPLETIONS: Final = 10_000_000
"""Of an arm: a plan of somebody else must not ask for more than anybody waits for."""
MOST_TOKENS: Final = 1 << 24
"""Of a completion; no context is longer."""

NO_VARIANTS: Final = ("server", "replay")
"""Backends whose arms are as they are: --variants makes no others of them."""

SKETCHED: Final = ("layers", "parts")
"""Of which modules activations are sketched: decoder layers, or their parts too."""


def parse_tolerance(value: Json) -> float | str:
    """Nats as a number, or "auto". Raises ValueError."""
    if value == "auto":
        return "auto"
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = -1.0  # words: the same sentence as for a number that is none of these
    nats: float = typed(float, value)
    if not 0 <= nats < float("inf"):
        raise ValueError(message("plan.must_nats", "must be a number of nats, 0 or more, or auto"))
    return nats


def parse_record(value: Json) -> bool | str:
    """Whether steps are recorded: true, false, or "ring". Raises ValueError."""
    if value == RING:
        return RING
    if isinstance(value, bool):
        return value
    raise ValueError(message("plan.not_record", "is {value!r}, not true, false or {ring!r}", value=value, ring=RING))


def _sketch_level(value: Json) -> str:
    return one_of(value, ("", *SKETCHED))


@dataclass(frozen=True, slots=True)
class Plan:
    model: Model
    requests: tuple[Request, ...]
    arms: tuple[Arm, ...]
    baseline: str
    sampling: Annotated[Sampling, Read(run_sampling)]
    rounds: int = 1
    score: Score = field(default_factory=Score)
    tolerance: Annotated[float | str, Read(parse_tolerance)] = DEFAULT_TOLERANCE
    parity: str = __version__
    churn: Churn = field(default_factory=Churn)
    skipped: tuple[Skipped, ...] = ()
    arbiter: Arm | None = None
    """An engine that is no arm and scores both sides where they differ."""
    record: Annotated[bool | str, Read(parse_record)] = False
    """Whether the engines' steps are recorded beside the captures (docs/steps.md): all of them (True), or "ring"."""
    sketch: Annotated[str, Read(_sketch_level)] = ""
    """Of which modules activations are sketched beside the captures (docs/sketches.md): one of SKETCHED, or none."""
    set_aside: tuple[str, ...] = ()
    """Flags of the deployment that say how its server serves, and reach no arm."""

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

    def sampling_of(self, request: Request) -> Sampling:
        """Every sampling parameter of a request: its own, and else the plan's."""
        limit = {} if request.max_tokens is None else {"max_tokens": request.max_tokens}
        return self.sampling.having({**request.sampling, **limit})

    def with_model_path(self, path: str | Path) -> Plan:
        return replace(self, model=replace(self.model, path=str(path)))

    def to_json(self) -> dict[str, Json]:
        return {
            "schema": SCHEMA,
            "parity": self.parity,
            "model": self.model.to_json(),
            "rounds": self.rounds,
            "sampling": self.sampling.to_json(),
            "requests": [one.to_json() for one in self.requests],
            "arms": [arm.to_json() for arm in self.arms],
            **({} if self.arbiter is None else {"arbiter": self.arbiter.to_json()}),
            "baseline": self.baseline,
            "score": asdict(self.score),
            "tolerance": self.tolerance,
            **({} if self.churn == Churn() else {"churn": self.churn.to_json()}),
            **({"skipped": [one.to_json() for one in self.skipped]} if self.skipped else {}),
            **({"record": self.record} if self.record else {}),
            **({"sketch": self.sketch} if self.sketch else {}),
            **({"set_aside": list(self.set_aside)} if self.set_aside else {}),
        }

    def check(self) -> None:
        """Raises ParityError where the parts do not fit together."""
        self.sampling.check()
        if not self.requests:
            raise ParityError(
                message("plan.plan_no_requests", "the plan has no requests"),
                hint=message("plan.give_least_one", "give it at least one prompt"),
            )
        if self.rounds < 1:
            raise ParityError(
                message("plan.rounds", "rounds is {rounds}", rounds=self.rounds),
                hint=message("plan.ask_least_one", "ask for at least one round"),
            )
        if self.expected_completions > MOST_COMPLETIONS:
            raise ParityError(
                message(
                    "plan.too_many", "the plan asks for {count} completions an arm", count=self.expected_completions
                ),
                hint=message("plan.fewer", "{most} are the most: ask for fewer rounds", most=MOST_COMPLETIONS),
            )
        if self.sampling.max_tokens > MOST_TOKENS:
            raise ParityError(
                message("plan.too_long", "max_tokens is {count}", count=self.sampling.max_tokens),
                hint=message("plan.shorter", "{most} is the most", most=MOST_TOKENS),
            )
        self._check_names()
        for request in self.requests:
            self._check_request(request)
        self._check_sampling()
        self.churn.check(frozenset(r.id for r in self.requests), self.sampling.n)
        if self.sketch and self.churn.asynchronous:
            raise ParityError(
                message("plan.sketch_asynchronous", "activations cannot be sketched in an asynchronous engine"),
                hint=message("plan.sketch_in_process", "leave out --sketch, or the asynchronous churn"),
            )
        if self.sketch and self.score.mode == "none":
            raise ParityError(
                message("plan.sketch_unscored", "without scoring there is nothing to set sketches against"),
                hint=message("plan.sketch_and_score", "leave out --sketch, or `--score none`"),
            )
        self._check_arms()

    def _check_names(self) -> None:
        for what, names in (
            ("request", [r.id for r in self.requests]),
            ("arm", [arm.name for arm in self.arms]),
        ):
            repeated = [name for name, count in Counter(names).items() if count > 1]
            if repeated:
                raise ParityError(
                    message(
                        "plan.plan_names_twice",
                        "the plan names the {what} {repeated!r} twice",
                        what=what,
                        repeated=repeated[0],
                    ),
                    hint=message("plan.give_every_own", "give every {what} its own name", what=what),
                )

    def _check_request(self, request: Request) -> None:
        if not request.prompt_token_ids:
            raise ParityError(
                message("plan.request_no_tokens", "request {request!r} has no tokens", request=request.id),
                hint=message("plan.remove_empty_prompt", "remove the empty prompt"),
            )
        bad = [t for t in request.prompt_token_ids if t < 0 or t >= (self.model.vocab_size or 2**31)]
        if bad:
            raise ParityError(
                message(
                    "plan.request_token_id",
                    "request {request!r} has the token id {bad}, outside the model's vocabulary of {vocab_size}",
                    request=request.id,
                    bad=bad[0],
                    vocab_size=self.model.vocab_size,
                ),
                hint=message("plan.these_prompt_token", "these prompt_token_ids were made with another tokenizer"),
            )
        if request.max_tokens is not None and not 1 <= request.max_tokens <= self.sampling.max_tokens:
            raise ParityError(
                message(
                    "plan.request_max_tokens",
                    "request {request!r} has max_tokens {max_tokens}, the plan {max_tokens_2}",
                    request=request.id,
                    max_tokens=request.max_tokens,
                    max_tokens_2=self.sampling.max_tokens,
                ),
                hint=message("plan.requests_own_limit", "a request's own limit is from 1 to the plan's"),
            )

    def _check_arms(self) -> None:
        names = [arm.name for arm in self.arms]
        if self.baseline not in names:
            raise ParityError(
                message(
                    "plan.baseline_none_arms",
                    "the baseline {baseline!r} is none of the arms {names}",
                    baseline=self.baseline,
                    names=names,
                ),
                hint=message("plan.name_one_them", "name one of them with --baseline"),
            )
        if len(self.arms) < 2:
            raise ParityError(
                message(
                    "plan.there_only_one", "there is only one arm, {names}: nothing to compare it with", names=names[0]
                ),
                hint=message(
                    "plan.add_server",
                    "add a second server (--server), a recording (--replay) or an engine (--backends cpu)",
                )
                if self.arms[0].backend in NO_VARIANTS
                else message(
                    "plan.add_variant_variants",
                    "add a variant (--variants base,mtp) or a backend (--backends cpu,cuda)",
                ),
            )

    def _check_sampling(self) -> None:
        """Raises ParityError for parameters that make no sense, or that an arm's engine would refuse."""
        speculating = [arm.name for arm in self.arms if speculates(arm.engine)]
        plain = [request for request in self.requests if not request.sampling]
        shortest = sorted(plain, key=lambda one: one.max_tokens or self.sampling.max_tokens)[:1]
        for request in [*shortest, *(one for one in self.requests if one.sampling)]:
            sampling = self.sampling_of(request)
            check_request(request.id, sampling, self.model.vocab_size)
            if speculating:
                check_speculation(speculating[0], request.id, sampling)

    @staticmethod
    def from_json(value: Json, source: str = "plan") -> Plan:
        """A checked plan from parsed JSON. Raises ParityError that names `source` and the field."""
        if not is_shallow(value, DEEPEST_PLAN):
            raise ParityError(
                message("plan.too_deep", "{source}: lists and objects nested too deeply", source=source),
                hint=message("plan.plan_file", "is it a plan file?"),
            )
        try:
            orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
        except TypeError as error:  # half characters, numbers beyond 64 bits
            raise ParityError(
                message(
                    "plan.unwritable", "{source}: it cannot be written again: {said}", source=source, said=str(error)
                ),
                hint=message("plan.plan_file", "is it a plan file?"),
            ) from None
        if isinstance(value, dict):
            value = {"parity": "", **value}
            schema = value.pop("schema", None)
            if schema != SCHEMA:
                raise ParityError(
                    message(
                        "plan.schema_parity_reads",
                        "{source}: schema is {schema!r}, this parity reads {schema_2!r}",
                        source=source,
                        schema=schema,
                        schema_2=SCHEMA,
                    ),
                    hint=message("plan.write_plan_again", "write the plan again with `parity plan`"),
                )
        plan = read(Plan, value, source)
        try:
            plan.check()
        except ParityError as error:
            raise ParityError(
                message("plan.wrong_in", "{source}: {problem}", source=source, problem=error.message), hint=error.hint
            ) from None
        return plan


def read_plan(path: str | Path) -> Plan:
    """Read and check a plan file. Raises ParityError naming the file and the field."""
    path = Path(path)
    try:
        text = read_whole(path).decode()
    except OSError as error:
        hint = message("plan.write_one", "write one with `parity plan -o FILE`")
        raise cannot_read(path, error, hint) from error
    except UnicodeDecodeError as error:
        raise ParityError(
            message("plan.not_utf_text", "{path} is not UTF-8 text: {reason}", path=str(path), reason=error.reason),
            hint=message("plan.plan_file", "is it a plan file?"),
        ) from error
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParityError(
            message("plan.not_json", "{path} is not JSON: {said}", path=str(path), said=str(error)),
            hint=message("plan.plan_file", "is it a plan file?"),
        ) from error
    return Plan.from_json(value, str(path))
