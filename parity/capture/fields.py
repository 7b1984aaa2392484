"""Single fields of a record, taken out of parsed JSON: each raises Malformed where it is not what it should be."""

from __future__ import annotations

import base64
import binascii
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct, structs

from parity.capture.problems import Malformed
from parity.messages import Message, message
from parity.records import Json, SpecTrace, TokenIds, TopLogprobs

T = TypeVar("T", bound=Struct)


@dataclass(frozen=True, eq=False)
class Must:
    """What a field must be."""

    be: Message


_STRING: Final = Must(message("capture.must_string_got", "{name} must be a string, got {shown}"))
_WHOLE: Final = Must(message("capture.must_whole_number", "{name} must be a whole number, got {shown}"))
_FLAG: Final = Must(message("capture.must_true_false", "{name} must be true or false, got {shown}"))
_OBJECT: Final = Must(message("capture.must_object_got", "{name} must be an object, got {shown}"))

Name = Annotated[str, _STRING]
Text = Annotated[str | None, _STRING]
LARGEST: Final = 2**31 - 1
"""Of a count: rounds, samples, a vocabulary, a limit of tokens."""

Count = Annotated[int, Meta(ge=0, le=LARGEST), _WHOLE]
MaybeCount = Annotated[Annotated[int, Meta(ge=0, le=LARGEST)] | None, _WHOLE]
Flag = Annotated[bool | None, _FLAG]
Object = Annotated[dict[str, Any] | None, _OBJECT]
"""Types of fields: msgspec checks the value, and what the field must be is said in words of ours."""


def take(kind: type[T], record: Mapping[str, Any]) -> T:
    """The fields of a record that parity knows; what it does not know is passed over. Raises Malformed."""
    try:
        return msgspec.convert(record, kind)
    except msgspec.ValidationError:
        raise _malformed(kind, record) from None


def _malformed(kind: type[Struct], record: Mapping[str, Any]) -> Malformed:
    """Which field is wrong, and what it must be."""
    hints = get_type_hints(kind, include_extras=True)
    for name, hint in hints.items():
        if name not in record:
            continue
        try:
            msgspec.convert(record[name], hint)
        except msgspec.ValidationError:
            must = next(mark for mark in hint.__metadata__ if isinstance(mark, Must))
            return Malformed(replace(must.be, parameters={"name": name, "shown": shown(record[name])}))
    missing = next(each.name for each in structs.fields(kind) if each.required and each.name not in record)
    return Malformed(message("capture.no", "no {name}", name=missing))


def encode_token_ids(token_ids: TokenIds) -> Json:
    """The compact form of a token array: little-endian int32 in base64. Ids must fit into int32."""
    return {"int32": base64.b64encode(np.asarray(token_ids, dtype="<i4").tobytes()).decode("ascii")}


def decode_token_ids(value: Any, name: str = "token_ids") -> TokenIds:
    """Token ids from a JSON list or from the compact form, as int64 of shape (T,)."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, dict):
        try:
            raw = base64.b64decode(value["int32"], validate=True)
            return np.frombuffer(raw, dtype="<i4").astype(np.int64)
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise Malformed(
                message(
                    "capture.neither_list_nor",
                    "{name} is neither a list nor {{'int32': base64}}: {said}",
                    name=name,
                    said=str(error),
                )
            ) from None
    if not isinstance(value, list):
        raise Malformed(
            message(
                "capture.must_list_integers",
                "{name} must be a list of integers, got {shown}",
                name=name,
                shown=shown(value),
            )
        )
    if not value:
        return np.empty(0, dtype=np.int64)
    try:
        found = np.frombuffer(array("q", value), dtype=np.int64)  # twice as fast as numpy's own way through a list
    except (TypeError, OverflowError):
        return _odd_token_ids(value, name)
    # To `array` true and false are whole numbers.
    return found if type(value[0]) is int else _odd_token_ids(value, name)


def _odd_token_ids(value: list[Any], name: str) -> TokenIds:
    """Of what is no plain list of whole numbers, most likely. Raises Malformed."""
    try:
        found = np.array(value)
    except (ValueError, OverflowError):
        raise Malformed(
            message("capture.must_flat_list_integers", "{name} must be a flat list of integers", name=name)
        ) from None
    if found.ndim != 1 or found.dtype.kind != "i":
        raise Malformed(
            message("capture.must_flat_list", "{name} must be a flat list of integers that fit into 64 bits", name=name)
        )
    return found.astype(np.int64, copy=False)


def logprobs_of(value: Any) -> TopLogprobs:
    if isinstance(value, TopLogprobs):
        return value
    if not isinstance(value, list):
        raise Malformed(
            message(
                "capture.logprobs_must_list",
                "logprobs must be a list with one entry per token, got {shown}",
                shown=shown(value),
            )
        )
    try:
        return TopLogprobs.from_json([entry if entry is not None else [] for entry in value])
    except (ValueError, TypeError, OverflowError) as error:
        raise Malformed(
            message(
                "capture.logprobs_must_token", "logprobs must be [[[token_id, logprob], …], …]: {said}", said=str(error)
            )
        ) from None


def numbers_of(value: Any, name: str, length: int) -> npt.NDArray[np.float64]:
    """A list of `length` numbers, null for one that is not known, as an array with NaN."""
    try:
        found = np.array(value, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        found = np.empty(0)
    if not isinstance(value, list) or found.shape != (length,):
        raise Malformed(
            message(
                "capture.must_list_numbers",
                "{name} must be a list of {count} numbers, got {shown}",
                name=name,
                count=length,
                shown=shown(value),
            )
        )
    return found


def spec_of(value: Any) -> SpecTrace | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise Malformed(message("capture.spec_must_object", "spec must be an object, got {shown}", shown=shown(value)))
    return SpecTrace(
        decode_token_ids(value.get("accepted", []), "spec.accepted"),
        decode_token_ids(value.get("drafted", []), "spec.drafted"),
    )


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
