"""Sampling parameters: one row each, and everything that is asked, sent, compared or said of one is a column of it.

    from parity.records.sampling import Effect, Form, Parameter, register

    register(Parameter(name="top_a", form=Form.NUMBER, default=0.0, effect=Effect.DRAWS, help="Top-a sampling."))

The parameters of `Sampling` are its fields, so that a type checker knows them; those registered at run time are in its
`more`. Options of the command line, keys of parity.toml and of prompts files, the plan, what is sent to an engine and
what a comparison looks at are derived from the rows. Names are those of `vllm.SamplingParams` (v0.11.0 to v0.33.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, Final

from parity.errors import ParityError, said_by
from parity.messages import Message, message
from parity.records.parameter import Effect as Effect
from parity.records.parameter import Form as Form
from parity.records.parameter import Json
from parity.records.parameter import Parameter as Parameter
from parity.records.parameter import Value as Value

_FORMS: Final[Mapping[str, tuple[Form, bool]]] = {
    "float": (Form.NUMBER, False),
    "int": (Form.WHOLE, False),
    "int | None": (Form.WHOLE, True),
    "bool": (Form.FLAG, False),
    "tuple[str, ...]": (Form.TEXTS, False),
    "tuple[int, ...]": (Form.TOKENS, False),
    "tuple[int, ...] | None": (Form.TOKENS, True),
    "Mapping[int, float] | None": (Form.BIAS, True),
    "Mapping[str, Any] | None": (Form.GRAMMAR, True),
}
"""Form of a field of `Sampling`, and whether None is a value of it, by its annotation."""

_LATER: Final[dict[str, Parameter]] = {}


def _row(default: Value, effect: Effect, help: str, **columns: Any) -> Any:
    return field(default=default, metadata={"effect": effect, "help": help, **columns})


@dataclass(frozen=True, slots=True)
class Sampling:
    """Every sampling parameter of a request, none left to a default of an engine or a checkpoint."""

    temperature: float = _row(
        0.0,
        Effect.DRAWS,
        "0 is greedy.",
        least=0,
        most=2,
        openai="standard",
        transformers="temperature",
        always_written=True,
    )
    top_p: float = _row(
        1.0, Effect.DRAWS, "Nucleus sampling.", least=0, above_least=True, most=1, openai="standard",
        transformers="top_p", always_written=True,
    )  # fmt: skip
    top_k: int = _row(
        0, Effect.DRAWS, "0 is all tokens.", least=0, transformers="top_k", always_written=True,
    )  # fmt: skip
    min_p: float = _row(
        0.0, Effect.DRAWS, "Least probability, relative to the best token's.", least=0, most=1, transformers="min_p",
        speculates=False, always_written=True,
    )  # fmt: skip
    repetition_penalty: float = _row(
        1.0, Effect.PENALISES, "On tokens of prompt and output; 1 is none.", least=0, above_least=True,
        transformers="repetition_penalty", always_written=True, counts_prompt=True,
    )  # fmt: skip
    presence_penalty: float = _row(
        0.0, Effect.PENALISES, "On tokens of the output.", least=-2, most=2, openai="standard", always_written=True
    )
    frequency_penalty: float = _row(
        0.0, Effect.PENALISES, "On tokens of the output, each time.", least=-2, most=2, openai="standard",
        always_written=True,
    )  # fmt: skip
    max_tokens: int = _row(
        128, Effect.ENDS, "Output tokens.", least=1, assumed=False, openai="standard", transformers="max_new_tokens",
        always_written=True,
    )  # fmt: skip
    min_tokens: int = _row(
        0, Effect.ENDS, "Output tokens before EOS or a stop token may come.", least=0, transformers="min_new_tokens",
        always_written=True,
    )  # fmt: skip
    n: int = _row(
        1, Effect.RETURNS, "Samples per prompt.", least=1, per_request=False, openai="standard",
        transformers="num_return_sequences", always_written=True,
    )  # fmt: skip
    seed: int | None = _row(
        0, Effect.DRAWS, "Seed of engine and sampling.", compared=False, assumed=False, openai="standard",
        always_written=True,
    )  # fmt: skip
    stop: tuple[str, ...] = _row(
        (), Effect.ENDS, "A text that ends the output.", openai="standard", transformers="stop_strings",
        always_written=True,
    )  # fmt: skip
    stop_token_ids: tuple[int, ...] = _row(
        (), Effect.ENDS, "Tokens that end the output.", transformers="eos_token_id", always_written=True
    )
    ignore_eos: bool = _row(False, Effect.ENDS, "Go on past EOS up to --max-tokens.", always_written=True)
    skip_special_tokens: bool = _row(True, Effect.RETURNS, "Leave special tokens out of the text.", always_written=True)
    logprobs: int | None = _row(
        None, Effect.RETURNS,
        "Top logprobs that each arm records beside the chosen token's own; none for not even that. "
        "[default: 0, with servers none]",
        least=0, most=20, usual=0, compared=False, assumed=False, openai="standard", transformers="output_logits",
        always_written=True,
    )  # fmt: skip
    include_stop_str_in_output: bool = _row(False, Effect.RETURNS, "Leave the stop string in the text.")
    bad_words: tuple[str, ...] = _row(
        (), Effect.SHAPES, "A text that must not be said.", transformers="bad_words_ids", reference=False
    )
    allowed_token_ids: tuple[int, ...] | None = _row(None, Effect.SHAPES, "Only these tokens may be said.")
    logit_bias: Mapping[int, float] | None = _row(
        None, Effect.SHAPES, "Added to the logit of a token.", openai="standard", transformers="sequence_bias",
        speculates=False,
    )  # fmt: skip
    structured_outputs: Mapping[str, Any] | None = _row(
        None, Effect.SHAPES, "What the output must follow: json, regex, choice or grammar.", reference=False
    )
    more: Mapping[str, Value] = field(default_factory=dict)
    """Parameters that were registered at run time, by name."""

    def __iter__(self) -> Iterator[tuple[Parameter, Value]]:
        """Each parameter with its value, in the order of the table."""
        for row in asked():
            yield row, self.value(row.name)

    def value(self, name: str) -> Value:
        """Raises KeyError for a name that no row has."""
        row = PARAMETERS[name] if name in PARAMETERS else _LATER[name]
        found: Value = getattr(self, name) if name in PARAMETERS else self.more.get(name, row.default)
        return found

    def having(self, values: Mapping[str, Value]) -> Sampling:
        """With other values. Raises KeyError for a name that no row has."""
        known = {name: value for name, value in values.items() if name in _DECLARED}
        more = {_LATER[name].name: value for name, value in values.items() if name not in _DECLARED}
        return replace(self, **known, more={**self.more, **more}) if more else replace(self, **known)  # type: ignore[arg-type]

    def check(self) -> None:
        """Raises ParityError for a value or a combination that an engine would refuse or that makes no sense."""
        for row, value in self:
            row.check(value)
        if self.temperature == 0 and self.n > 1:
            raise ParityError(
                message(
                    "sampling.greedy_samples",
                    "n is {n} with temperature 0: greedy decoding gives the same sample {n} times",
                    n=self.n,
                ),
                hint=message(
                    "sampling.sample_or_repeat",
                    "set --temperature above 0, or repeat the whole batch with --rounds",
                ),
            )
        if self.min_tokens > self.max_tokens:
            raise ParityError(
                message(
                    "sampling.min_above_max",
                    "min_tokens is {least}, max_tokens {most}",
                    least=self.min_tokens,
                    most=self.max_tokens,
                ),
                hint=message("sampling.min_at_most_max", "min_tokens can be max_tokens at most"),
            )
        if self.allowed_token_ids == ():
            raise ParityError(
                message("sampling.none_allowed", "allowed_token_ids is empty: no token may be said"),
                hint=message("sampling.allow_or_leave_out", "name at least one token, or leave it out"),
            )

    def to_json(self) -> dict[str, Json]:
        """As json.loads would give it back; what is not always written only where it is off its default."""
        return {row.name: json_value(value) for row, value in self if row.always_written or value != row.default}


def json_value(value: Value) -> Json:
    """A parameter's value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(name): item for name, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _declared() -> Iterator[Parameter]:
    for each in fields(Sampling):
        if each.metadata:
            form, nullable = _FORMS[str(each.type)]
            default: Value = each.default  # type: ignore[assignment]  # `_row` gives each a default
            yield Parameter(name=each.name, form=form, nullable=nullable, default=default, **each.metadata)


_DECLARED: Final[Mapping[str, Parameter]] = {row.name: row for row in _declared()}


def _others(name: str, effect: Effect, *, compared: bool = True) -> Parameter:
    """A parameter that no plan has, known from captures of others."""
    return Parameter(
        name=name, form=Form.GRAMMAR, nullable=True, default=None, effect=effect, asked=False, compared=compared,
        assumed=False,
    )  # fmt: skip


PARAMETERS: Final[Mapping[str, Parameter]] = {
    **_DECLARED,
    **{
        row.name: row
        for row in (
            _others("guided_decoding", Effect.SHAPES),
            _others("logits_processors", Effect.SHAPES),
            _others("response_format", Effect.SHAPES),
            _others("prompt_logprobs", Effect.RETURNS, compared=False),
            _others("detokenize", Effect.RETURNS, compared=False),
            _others("extra", Effect.RETURNS, compared=False),
        )
    },
}
"""Rows by name, those that only captures of others name among them; `parameters()` has those registered later too."""


def register(row: Parameter) -> Parameter:
    """Make a parameter known. Raises ValueError where another row has the name."""
    if row.name in PARAMETERS or _LATER.setdefault(row.name, row) != row:
        raise ValueError(f"there is a sampling parameter {row.name!r} already")
    return row


def forget(row: Parameter) -> None:
    """Undo `register`."""
    _LATER.pop(row.name, None)


def parameters() -> list[Parameter]:
    """All rows, in the order of the table."""
    return [*PARAMETERS.values(), *_LATER.values()]


def parameter(name: str) -> Parameter | None:
    """The row of this name, if there is one."""
    return PARAMETERS.get(name) or _LATER.get(name)


def asked() -> list[Parameter]:
    """Rows of the parameters that a plan may have."""
    return [row for row in parameters() if row.asked]


def read_values(
    given: Mapping[str, Json], refuse: Callable[[str, Message], Exception], *, own: bool = False
) -> dict[str, Value]:
    """Values by name from JSON; `own`: those of one request.

    `refuse(name, problem)` makes the exception for a name that no row has and for a value of another form.
    """
    found: dict[str, Value] = {}
    for name, value in given.items():
        row = parameter(name)
        if row is None or not row.asked:
            known = [one.name for one in asked()]
            near = get_close_matches(name, known, n=1)
            problem = message(
                "sampling.not_known", "is not a sampling parameter this parity knows ({known})", known=known
            )
            if near:
                problem = message("sampling.meant", "{problem}; did you mean {near}?", problem=problem, near=near[0])
            raise refuse(name, problem)
        if own and not row.per_request:
            raise refuse(name, message("sampling.not_own", "cannot be a request's own"))
        try:
            found[name] = row.read(value)
        except (TypeError, ValueError) as error:
            raise refuse(name, said_by(error)) from None
    return found


def wire() -> dict[str, dict[str, Json]]:
    """What a worker has to know of each parameter, by name (`parity_backends.worker.sampling`)."""
    return {
        row.name: {
            "default": json_value(row.default),
            "compared": row.compared,
            "vllm": row.vllm,
            "openai": row.openai,
            "reference": row.reference,
        }
        for row in asked()
    }


def needs_long_lists(sampling: Mapping[str, Json]) -> bool:
    """Is more than the very best tokens needed to judge by? Penalties push these down, what is forbidden or refused by
    a grammar stands among them, and of what was drawn the ranks below them say at which temperature: of a flat model,
    five tokens a sixth of what can be known, twenty four tenths."""
    asked = bool(sampling.get("temperature")) or any(sampling.get(name) for name in ASK_GRAMMARS)
    return penalises(sampling) or forbids(sampling) or asked


ASK_GRAMMARS: Final = frozenset({"structured_outputs", "guided_decoding", "response_format"})
"""Sampling parameters that ask for a grammar, of vLLM's and OpenAI's names."""


_FORBIDDING = ("allowed_token_ids", "bad_words")


def forbids(sampling: Mapping[str, Json]) -> bool:
    """Are there tokens by name that could not be drawn, whatever the lists say?"""
    return any(sampling.get(name) for name in _FORBIDDING)


def penalises(sampling: Mapping[str, Json]) -> bool:
    """Does an engine choose from logits that these parameters moved by a penalty or a bias?"""
    moving = [row for row in parameters() if row.effect is Effect.PENALISES or row.form is Form.BIAS]
    return any(row.plain(sampling.get(row.name)) != row.plain(row.default) for row in moving)


def beyond_reference(sampling: Mapping[str, Json]) -> bool:
    """Whether a parameter is asked for that the greedy decoding of `transformers` does not apply."""
    return any(
        not row.reference and sampling.get(row.name, row.default) not in (None, row.default, []) for row in parameters()
    )
