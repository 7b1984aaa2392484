"""How two arms differ besides what was to be compared: engine versions, precision, engine settings.

None of it is a fault, and two hosts nearly always differ in some of it; but who reads a divergence must know
that it may come from there.
"""

from __future__ import annotations

from collections.abc import Mapping

from parity.records import Header, Json

PRECISION = ("dtype", "quantization", "kv_cache_dtype", "mamba_cache_dtype", "mamba_ssm_cache_dtype")
"""Engine settings that change how numbers are rounded."""

_LOCAL = frozenset({"asked", "seed", "device", "worker", "executor", "multiprocessing", "arguments", "dropped"})
"""Engine settings that differ between any two hosts, or that others already speak of."""

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


def differences(baseline: Header, candidate: Header) -> dict[str, dict[str, list[Json]]]:
    """{"versions", "precision", "engine", "checkpoint"}: name to [baseline's, candidate's]; only what differs.

    Only names that both sides have: what one side alone has belongs to its hardware or its variant.
    """
    versions = _differing(baseline.environment.get("versions"), candidate.environment.get("versions"))
    engine = _differing(baseline.engine, candidate.engine)
    # What one side leaves out is the unquantised model.
    methods = [header.engine.get("quantization") for header in (baseline, candidate)]
    if methods[0] != methods[1] and "dtype" in baseline.engine and "dtype" in candidate.engine:
        engine["quantization"] = methods
    _, parts = differing_parts(baseline, candidate)
    found = {
        "versions": versions,
        "precision": {name: value for name, value in engine.items() if name in PRECISION},
        "engine": {name: value for name, value in engine.items() if name not in PRECISION and name not in _LOCAL},
        "checkpoint": {name: ["another", "another"] for name in parts},
    }
    return {name: value for name, value in found.items() if value}


def _differing(left: Json, right: Json) -> dict[str, list[Json]]:
    if not (isinstance(left, Mapping) and isinstance(right, Mapping)):
        return {}
    return {
        str(name): [_plain(left[name]), _plain(right[name])]
        for name in left
        if name in right and _plain(left[name]) != _plain(right[name])
    }


def _plain(value: Json) -> Json:
    return value.removeprefix("torch.") if isinstance(value, str) else value


def as_notes(found: Mapping[str, Mapping[str, list[Json]]]) -> list[str]:
    """One sentence for each sort of difference."""
    notes = []
    if "versions" in found:
        notes.append(f"the arms ran other versions: {_listed(found['versions'])}")
    if "precision" in found:
        notes.append(
            f"the arms ran in other precision: {_listed(found['precision'])}; the tolerance allows for the rounding "
            "of one and the same precision"
        )
    if "engine" in found:
        notes.append(f"engine settings differ: {_listed(found['engine'])}")
    if "checkpoint" in found:
        notes.append(f"the checkpoints differ in {', '.join(found['checkpoint'])}; weights and tokenizer are the same")
    return notes


def as_reason(found: Mapping[str, Mapping[str, list[Json]]]) -> str | None:
    """What besides the candidate's own doing may explain a divergence; None where nothing does."""
    told = {name: pair for part in ("versions", "precision") for name, pair in found.get(part, {}).items()}
    words = [_listed(told)] if told else []
    words += list(found.get("checkpoint", ()))
    return f"the arms also differ in {', '.join(words)}" if words else None


def _listed(found: Mapping[str, list[Json]]) -> str:
    return ", ".join(f"{name} {left} and {right}" for name, (left, right) in found.items())
