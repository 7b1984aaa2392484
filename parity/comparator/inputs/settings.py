"""How two arms differ besides what was to be compared: engine versions, precision, engine settings.

None of it is a fault, and two hosts nearly always differ in some of it; but who reads a divergence must know
that it may come from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from parity.comparator.inputs.servers import address, served
from parity.messages import Message, message
from parity.records import Header, Json
from parity.records.engine_settings import OPEN, asked_of, engine_settings, pinned_settings
from parity.records.objects import object_of

Differences: TypeAlias = Mapping[str, Mapping[str, tuple[Json, Json]]]

_ABOUT_THE_ARGUMENTS = frozenset({"asked", "arguments", "dropped"})
"""What a header's engine holds besides settings: others speak of it."""

_SAME_QUESTION = frozenset({"config.json"})
"""Parts of a checkpoint that may differ though the model is one: a path, a version, an architecture's name."""


def differing_parts(baseline: Header, candidate: Header) -> tuple[list[str], list[str]]:
    """(parts of the checkpoint that make it another model, parts that may differ), by `model_fingerprint`.

    A fingerprint is a mapping of parts to digests, or anything else that is equal for equal checkpoints.
    """
    left, right = (header.extra.get("model_fingerprint") for header in (baseline, candidate))
    if left is None or right is None or left == right:
        return [], []
    if not (isinstance(left, Mapping) and isinstance(right, Mapping)):
        return ["content"], []
    parts = sorted(name for name in left.keys() & right.keys() if left[name] != right[name])
    return [name for name in parts if name not in _SAME_QUESTION], [name for name in parts if name in _SAME_QUESTION]


def has_fingerprints(baseline: Header, candidate: Header) -> bool:
    """Do both say what checkpoint they loaded, in parts that can be compared?"""
    left, right = (header.extra.get("model_fingerprint") for header in (baseline, candidate))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return bool(left.keys() & right.keys())
    return left is not None and right is not None


def of_other_precision(found: Differences) -> bool:
    """Are the arms known to compute in other precision?"""
    return "precision" in found


def differences(baseline: Header, candidate: Header) -> Differences:
    """{"versions", "precision", "engine", "checkpoint"}: name to (baseline's, candidate's); only what differs.

    Only names that both sides have: what one side alone has belongs to its hardware or its variant.
    """
    versions = _differing(baseline.environment.get("versions"), candidate.environment.get("versions"))
    engine = _differing(baseline.engine, candidate.engine)
    # What one side leaves out is the unquantised model.
    methods = [header.engine.get("quantization") for header in (baseline, candidate)]
    if methods[0] != methods[1] and "dtype" in baseline.engine and "dtype" in candidate.engine:
        engine["quantization"] = methods[0], methods[1]
    precision = {row.key for row in engine_settings() if row.precision}
    untold = _ABOUT_THE_ARGUMENTS | {row.key for row in engine_settings() if row.local}
    _, parts = differing_parts(baseline, candidate)
    found = {
        "versions": versions,
        "precision": {name: value for name, value in engine.items() if name in precision},
        "engine": {name: value for name, value in engine.items() if name not in precision | untold},
        "checkpoint": dict.fromkeys(parts, ("another", "another")),
    }
    return {name: value for name, value in found.items() if value}


def unlike_production(header: Header) -> dict[str, Json]:
    """What production usually has of the settings in which this arm was pinned to something else; {} for an arm that
    leaves any of them to its engine, as a deployed one does, and for a server."""
    if not asked_of(header.engine).keys() >= set(pinned_settings()):
        return {}
    rows = [row for row in engine_settings() if row.production is not OPEN]
    return {row.name: row.production for row in rows if header.engine.get(row.key, row.production) != row.production}


_ENGINES = ("vllm", "torch", "triton", "flash", "sgl")
"""How the packages begin that bring kernels."""

_HARDWARE = ("devices", "machine", "cuda")
"""What an environment says of the machine that decides kernels. Processors are named where there are no devices."""

_ATTENTION = ("attention_backend", "attention_config")
"""Arguments that choose kernels of attention: what is gone by where a capture does not say which ones came of it."""

_CHOOSING = ("VLLM_ATTENTION_BACKEND", "VLLM_BATCH_INVARIANT")
"""Environment variables that choose kernels."""


def other_kernels(baseline: Header, candidate: Header, found: Differences) -> tuple[str, ...]:
    """Names of all that is known to make the arms compute with other kernels; () where they run the same.

    Batches, speculation, scheduling and graphs run the same kernels in other shapes: what these differ by is small.
    """
    names = ["backend"] if baseline.backend != candidate.backend else []
    servers = address(baseline), address(candidate)
    names += ["server"] if None not in servers and servers[0] != servers[1] else []
    names += [name for name in found.get("versions", ()) if name.startswith(_ENGINES)]
    names += list(found.get("precision", ()))
    choosing = {row.key for row in engine_settings() if row.kernels}
    names += [name for name in found.get("engine", ()) if name in choosing or "attention" in name]
    if not all("attention_backends" in one.engine for one in (baseline, candidate)):
        left, right = asked_of(baseline.engine), asked_of(candidate.engine)
        names += [name for name in _ATTENTION if left.get(name) != right.get(name)]
    names += list(found.get("checkpoint", ()))
    environments = baseline.environment, candidate.environment
    hardware = _HARDWARE if any(one.get("devices") for one in environments) else (*_HARDWARE, "cpu", "cpu_flags")
    names += [name for name in hardware if _both_differ(*environments, name)]
    here, there = (one.get("variables") for one in environments)
    if isinstance(here, Mapping) and isinstance(there, Mapping):
        names += [name for name in _CHOOSING if here.get(name) != there.get(name)]
    return tuple(dict.fromkeys(names))


def hide_their_kernels(baseline: Header, candidate: Header) -> bool:
    """Are both arms servers of which the captures say neither engine nor device, nor that they are one server? Then
    nobody knows whether they run the same kernels."""
    places = address(baseline), address(candidate)
    return (places[0] is None or places[0] != places[1]) and all(
        served(one) and not one.engine and not any(map(one.environment.get, _HARDWARE)) for one in (baseline, candidate)
    )


def _both_differ(left: Mapping[str, Json], right: Mapping[str, Json], name: str) -> bool:
    return bool(left.get(name)) and bool(right.get(name)) and left[name] != right[name]


def _differing(here: Json, there: Json) -> dict[str, tuple[Json, Json]]:
    left, right = object_of(here), object_of(there)
    return {
        str(name): (_plain(left[name]), _plain(right[name]))
        for name in left
        if name in right and _plain(left[name]) != _plain(right[name])
    }


def _plain(value: Json) -> Json:
    return value.removeprefix("torch.") if isinstance(value, str) else value


def as_notes(found: Differences) -> tuple[Message, ...]:
    """One sentence for each sort of difference."""
    notes = []
    if "versions" in found:
        notes.append(
            message("inputs.versions", "the arms ran other versions: {settings}", settings=_each(found["versions"]))
        )
    if of_other_precision(found):
        notes.append(
            message(
                "inputs.precision",
                "the arms ran in other precision: {settings}; the tolerance allows for the rounding of one and the "
                "same precision",
                settings=_each(found["precision"]),
            )
        )
    if "engine" in found:
        notes.append(
            message("inputs.engine_settings", "engine settings differ: {settings}", settings=_each(found["engine"]))
        )
    if "checkpoint" in found:
        notes.append(
            message(
                "inputs.checkpoint",
                "the checkpoints differ in {parts}; weights and tokenizer are the same",
                parts=list(found["checkpoint"]),
            )
        )
    return tuple(notes)


def as_reason(found: Differences) -> Message | None:
    """What besides the candidate's own doing may explain a divergence; None where nothing does."""
    settings = {name: pair for part in ("versions", "precision") for name, pair in found.get(part, {}).items()}
    all_of_it = [*_each(settings), *found.get("checkpoint", ())]
    return (
        message("inputs.also_differ", "the arms also differ in {settings}", settings=all_of_it) if all_of_it else None
    )


def _each(found: Mapping[str, tuple[Json, Json]]) -> list[Message]:
    return [
        message(
            "inputs.setting_pair",
            "{name} {baseline} and {candidate}",
            name=name,
            baseline=str(left),
            candidate=str(right),
        )
        for name, (left, right) in found.items()
    ]
