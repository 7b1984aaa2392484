"""Did each engine do what the plan pinned? An engine may overrule a setting in silence.

A setting that did not resolve as asked means that the run tested something else than it set out to: never a PASS.
A setting that this version has no name for is reported and is no fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from parity.comparator.types import Remarks
from parity.messages import Message, message, words_heard
from parity.records import Header, Json
from parity.records.emulated import emulated, proves
from parity.records.engine_settings import COMPILATION_MODES, asked_of, setting_called
from parity.records.objects import object_of

LEFT_TO_THE_ENGINE = (None, "auto")

AUTOMATIC = {"max_model_len": -1}
"""The number that means "auto" of a setting."""

SPELLINGS = {"half": "float16", "float": "float32"}


def overruled(header: Header) -> dict[str, tuple[Json, Json]]:
    """Settings by name, as (asked, resolved), that did not resolve as they were asked."""
    found: dict[str, tuple[Json, Json]] = {}
    for name, value in _flat(asked_of(header.engine)):
        row = setting_called(name)
        if row is None or not (row.path and row.checked) or row.key not in header.engine or value in LEFT_TO_THE_ENGINE:
            continue
        if AUTOMATIC.get(name) == value:
            continue
        resolved = header.engine[row.key]
        if not _same(name, value, resolved):
            found[name] = (value, resolved)
    return found


def remarks(*headers: Header) -> Remarks:
    """Arms that were overruled, each a reason; what a version did not know, or knew by another name, as notes."""
    return Remarks(
        tuple(_overruled_words(header.arm, found) for header in headers if (found := overruled(header))),
        (*_devices(headers), *(note for header in headers for note in _notes(header))),
    )


def _devices(headers: Sequence[Header]) -> Iterator[Message]:
    names = [header.arm for header in headers if emulated(header.backend, header.environment)]
    if names:
        yield proves(*names)


def _overruled_words(arm: str, found: Mapping[str, tuple[Json, Json]]) -> Message:
    return message(
        "inputs.overruled",
        "{arm} was not run as asked: {settings}",
        arm=arm,
        settings=[
            message(
                "inputs.overruled_setting",
                "{name} is {resolved} instead of {asked}",
                name=name,
                resolved=str(resolved),
                asked=str(asked),
            )
            for name, (asked, resolved) in found.items()
        ],
    )


def _notes(header: Header) -> Iterator[Message]:
    dropped = {name: why for name, why in object_of(header.engine.get("dropped")).items() if not _harmless(name)}
    if dropped:
        settings = [
            message("inputs.without", "{name} ({why})", name=name, why=words_heard(why))
            for name, why in dropped.items()
        ]
        yield message("inputs.dropped", "{arm} ran without {settings}", arm=header.arm, settings=settings)
    translated = object_of(header.engine.get("translated"))
    if translated:
        names = [
            message("inputs.translated_name", "{old} as {new}", old=old, new=str(new))
            for old, new in translated.items()
        ]
        yield message(
            "inputs.translated", "{arm}: settings by this version's names: {names}", arm=header.arm, names=names
        )


def _harmless(name: str) -> bool:
    """Unknown to a version that has nothing of the kind: without it, it does what was asked all the same."""
    row = setting_called(name)
    return name == "VLLM_USE_V2_MODEL_RUNNER" or (row is not None and row.may_be_unknown)


def _flat(values: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, Json]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


_MODE_NAMES = {number: name for name, number in COMPILATION_MODES.items()}


def _same(name: str, asked: Json, resolved: Json) -> bool:
    if name == "speculative_config.method" and "mtp" in (asked, resolved):
        # The families' own names became one; vllm-ascend 0.11.0 writes DeepSeek's in its place.
        return all(str(method) == "mtp" or str(method).endswith("_mtp") for method in (asked, resolved))
    if name == "compilation_config.mode":  # asked by its number, read back by its name
        asked, resolved = (_mode(value) for value in (asked, resolved))
    if isinstance(asked, bool) or isinstance(resolved, bool) or not isinstance(asked, str):
        return bool(asked == resolved)
    plain = str(resolved).removeprefix("torch.").lower()
    return SPELLINGS.get(asked.lower(), asked.lower().removeprefix("torch.")) == plain


def _mode(value: Json) -> Json:
    return _MODE_NAMES.get(value, value) if isinstance(value, int) and not isinstance(value, bool) else value
