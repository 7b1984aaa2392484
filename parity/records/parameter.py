"""What parity knows of a sampling parameter: the type of a row of the table in `sampling.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from math import isfinite
from typing import Any, Final, Literal, TypeAlias

from parity.errors import ParityError
from parity.messages import Message, message

Json: TypeAlias = Any
Value: TypeAlias = bool | int | float | tuple[str | int, ...] | Mapping[int, float] | Mapping[str, Any] | None
"""A parameter's value: its form says which of these."""


class Effect(StrEnum):
    """What a parameter does to the distribution that tokens are chosen from."""

    DRAWS = "draws"
    """The random choice only: nothing at temperature 0, the temperature itself apart."""
    PENALISES = "penalises"
    """Lowers the logits of tokens seen before."""
    SHAPES = "shapes"
    """Forbids tokens or moves their logits: that a token is not the best of the raw ones says nothing then."""
    ENDS = "ends"
    """Says where a completion ends."""
    RETURNS = "returns"
    """How much is returned, and in which form."""


class Form(Enum):
    """What a value looks like: its type in Python, and in words."""

    NUMBER = (float, message("form.number", "a number"))
    WHOLE = (int, message("form.whole", "a whole number"))
    FLAG = (bool, message("form.flag", "true or false"))
    TEXTS = (tuple[str, ...], message("form.texts", "a list of strings"))
    TOKENS = (tuple[int, ...], message("form.tokens", "a list of token ids"))
    BIAS = (dict[int, float], message("form.bias", "an object of numbers by token id"))
    GRAMMAR = (dict[str, Any], message("form.grammar", "an object with one of json, regex, choice and grammar"))

    @property
    def words(self) -> Message:
        said: Message = self.value[1]
        return said

    def read(self, value: Json) -> Value:
        """The value from JSON. Raises TypeError with the message of what it must be."""
        import msgspec

        if self is Form.TEXTS and isinstance(value, str):
            value = [value]  # OpenAI's protocol takes one stop string without a list
        try:
            found: Value = msgspec.convert(value, self.value[0], str_keys=True)
        except msgspec.ValidationError:
            raise TypeError(_refused(self, json.dumps(value, default=str)[:60])) from None
        if isinstance(found, float) and not isfinite(found):
            raise TypeError(_refused(self, str(found)))
        if self is Form.GRAMMAR:
            _check_grammar(value)
        return found


def _refused(form: Form, given: str) -> Message:
    return message("form.refused", "must be {form}, not {given}", form=form.words, given=given)


GRAMMARS: Final[Mapping[str, tuple[type, ...]]] = {
    "json": (dict, str),
    "regex": (str,),
    "choice": (list,),
    "grammar": (str,),
}
"""What a completion may be made to follow, and the type of each (`vllm.sampling_params.StructuredOutputsParams`)."""


def _check_grammar(value: Mapping[str, Json]) -> None:
    words = Form.GRAMMAR.words
    for name, item in value.items():
        if name not in GRAMMARS:
            raise TypeError(
                message("form.unknown_grammar", "must be {form}, not one with {name!r}", form=words, name=name)
            )
        texts = item if isinstance(item, list) else [item]
        if not isinstance(item, GRAMMARS[name]) or not item or (name == "choice" and not _all_texts(texts)):
            given = json.dumps(item, default=str)[:60]
            raise TypeError(message("form.bad_grammar", "has a {name} that is {given}", name=name, given=given))
    if len(value) != 1:
        raise TypeError(message("form.many_grammars", "must be {form}, not {n} of them", form=words, n=len(value)))


def _all_texts(values: list[Json]) -> bool:
    return all(isinstance(value, str) and value for value in values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """What parity knows of one sampling parameter."""

    name: str
    form: Form
    default: Value
    """What parity asks for where the user says nothing: the value without effect, `max_tokens` apart."""
    effect: Effect
    help: str = ""
    """For people, a sentence without its subject."""
    least: float | None = None
    most: float | None = None
    usual: Value = None
    """What the commands ask for where the user says nothing, if that is not the default: a plan that says nothing keeps
    its meaning."""
    above_least: bool = False
    """`least` itself is out of range."""
    nullable: bool = False
    """None is a value of it: not asked for."""
    asked: bool = True
    """False: only captures of others name it; no plan has it."""
    always_written: bool = False
    """In each plan, also at its default: what `parity.plan/1` began with, so that plans keep their digest."""
    per_request: bool = True
    """A request may have a value of its own."""
    counts_prompt: bool = False
    """A penalty that is applied to tokens of the prompt too."""
    compared: bool = True
    """Arms that differ in it were asked different questions."""
    assumed: bool = True
    """A capture that leaves it out means the default."""
    vllm: bool = True
    """A parameter of `vllm.SamplingParams`; which release has it says the worker's table of signatures."""
    openai: Literal["standard", "vllm", None] = "vllm"
    """In OpenAI's protocol (`standard`), or vLLM's extension of it (other servers may refuse it); None: not there."""
    transformers: str | None = None
    """The name in `transformers.GenerationConfig`; None: it has none."""
    reference: bool = True
    """The transformers backend applies it."""
    speculates: bool = True
    """False: vLLM refuses it together with speculative decoding (`SamplingParams._validate_spec_decode`, v0.32.0)."""

    def read(self, value: Json) -> Value:
        """A value from JSON, a list as a tuple. Raises TypeError or ValueError that says what is wrong."""
        if value is None and self.nullable:
            return None
        return self.form.read(value)

    def check(self, value: Value) -> None:
        """Raises ParityError for a value out of range."""
        numbers = [value] if isinstance(value, int | float) else []
        for number in numbers:
            low = self.least is not None and (number < self.least or (self.above_least and number == self.least))
            if low or (self.most is not None and number > self.most):
                raise ParityError(
                    message("sampling.out_of_range", "{name} is {value}", name=self.name, value=f"{number:g}"),
                    hint=self._range,
                )
        if isinstance(value, tuple) and any(item == "" or (isinstance(item, int) and item < 0) for item in value):
            raise ParityError(
                message("sampling.empty", "{name} has {value}", name=self.name, value=json.dumps(list(value))),
                hint=message("sampling.not_empty", "leave out texts that are empty, and token ids below 0"),
            )

    @property
    def _range(self) -> Message:
        low = f"{self.least:g}" if self.least is not None else ""
        if self.most is not None and self.above_least:
            return message("sampling.above_to", "give more than {low}, to {high}", low=low, high=f"{self.most:g}")
        if self.most is not None:
            return message("sampling.range", "give {low} to {high}", low=low, high=f"{self.most:g}")
        if self.above_least:
            return message("sampling.above", "give more than {low}", low=low)
        return message("sampling.least", "give {low} or more", low=low)

    def means_something(self, value: Value, temperature: float) -> bool:
        """Whether this value has an effect at this temperature."""
        if self.effect is Effect.DRAWS and self.name != "temperature" and temperature == 0:
            return False
        return value is not None and value != self.default

    def token_ids(self, value: Value) -> list[int]:
        """The token ids that a value names."""
        named = value if self.form in (Form.TOKENS, Form.BIAS) and value is not None else ()
        return [token for token in named if isinstance(token, int)]  # type: ignore[union-attr]

    def plain(self, value: Json) -> Json:
        """A value as captures write it, whichever way its absence or its emptiness is written."""
        if value is None and self.assumed:
            value = self.default
        if self.form is Form.TEXTS and isinstance(value, str):
            return [value]
        if self.name == "top_k" and value == -1:
            return 0
        if isinstance(value, Mapping):
            return {str(name): item for name, item in value.items()} or None
        if self.nullable and not value and value != 0:
            return None
        return list(value) if isinstance(value, list | tuple) else value
