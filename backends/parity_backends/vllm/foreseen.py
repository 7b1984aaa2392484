"""Mistakes in what an engine is asked that are known before one starts.

What a plan asks for by hand goes past this: an argument of a vLLM that is newer than the table can be put there.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from parity.errors import ParityError
from parity.messages import message
from parity.plan.matrix import SPECULATION
from parity.records.engine_settings import draft_tokens, setting_called, speculative_settings
from parity.records.objects import object_of
from parity_backends.vllm.doctor.probe import model_facts
from parity_backends.vllm.worker.arguments import names_at, release
from parity_backends.vllm.worker.table import ASCEND_NAMES, VLLM_NAMES, VLLM_READ

SECTIONS: Final = ("speculative_config", "compilation_config")
"""Arguments whose own keys are in the table."""

OF_ASCEND: Final = "additional_config"
"""An argument that vllm-ascend reads; what other platforms read in it is not in the table."""

_PLAIN = re.compile(r"[0-9]+(\.[0-9]+)*")


def foresee(engine: Mapping[str, Any], model: Path, *, ascend: bool = False) -> None:
    """Raises ParityError for the first mistake."""
    _check_names(engine, ascend)
    _check_drafts(engine)
    _check_layers(engine, model)


def check_release(version: str) -> None:
    """Raises ParityError for a release of vLLM before the first that the worker can speak to."""
    first = VLLM_READ.split()[0]
    if _PLAIN.fullmatch(version) and release(version) < release(first):
        raise ParityError(
            message("vllm.too_early", "vLLM {version} is older than any that parity runs", version=version),
            hint=message("vllm.first_release", "the first one is {first}", first=first),
        )


def _names(engine: Mapping[str, Any], ascend: bool) -> Iterator[tuple[str, str]]:
    """(section, name) of every argument, and of every key in those that have their own."""
    yield from (("LLM", name) for name in engine)
    for section in (*SECTIONS, *([OF_ASCEND] if ascend else [])):
        yield from ((section, name) for name in object_of(engine.get(section)))


def _check_names(engine: Mapping[str, Any], ascend: bool) -> None:
    for section, name in _names(engine, ascend):
        known = names_at(VLLM_NAMES.get(section, {}), None) | names_at(ASCEND_NAMES.get(section, {}), None)
        if name in known:
            continue
        path = name if section == "LLM" else f"{section}.{name}"
        releases = VLLM_READ.split()
        said = message(
            "vllm.in_no_release",
            "vLLM has no argument {name}, in no release from {first} to {last}",
            name=path,
            first=releases[0],
            last=releases[-1],
        )
        if meant := _meant(section, name, known):
            said = message("serve.meant", "{problem}; did you mean {near}?", problem=said, near=meant)
        raise ParityError(
            said,
            hint=message(
                "vllm.newer_argument",
                "correct it; one of a vLLM that is newer than this parity goes into the plan by hand: `parity plan -o "
                "plan.json` without it, then into `engine` of its arms, then `parity run --plan plan.json`",
            ),
        )


def _meant(section: str, name: str, known: set[str]) -> str | None:
    if section == "LLM":
        row = setting_called(name)
        if row is not None and row.asked in known:
            return row.asked
        known = {*known, SPECULATION}
        if name == SPECULATION:
            return "-k"
    near = difflib.get_close_matches(name, sorted(known), n=1)
    prefix = "" if section == "LLM" else f"{section}."
    return f"{prefix}{near[0]}" if near else None


def _check_drafts(engine: Mapping[str, Any]) -> None:
    """A step takes a row's draft tokens and one more."""
    tokens = draft_tokens(engine)
    for name in ("max_model_len", "max_num_batched_tokens"):
        most = engine.get(name)
        if tokens and isinstance(most, int) and 0 <= most <= tokens:  # -1: the engine chooses
            raise ParityError(
                message(
                    "vllm.drafts_do_not_fit",
                    "{tokens} draft tokens do not fit: a step of one request would take {step} tokens, and {name} is "
                    "{most}",
                    tokens=tokens,
                    step=tokens + 1,
                    name=name,
                    most=most,
                ),
                hint=message("vllm.fewer_drafts", "ask for fewer, such as -k 3: checkpoints have layers for 1 to 3"),
            )


def _check_layers(engine: Mapping[str, Any], model: Path) -> None:
    settings = speculative_settings(engine)
    if not str(settings.get("method") or "").endswith("mtp") or settings.get("model"):
        return
    facts = model_facts(str(model))
    if facts.get("tensors") and not facts["mtp_layers"] and not facts["mtp_tensors"]:
        raise ParityError(
            message("vllm.no_layers", "the checkpoint {model} has no prediction layers (MTP)", model=model.name),
            hint=message(
                "vllm.take_layers",
                "take one that has them (`parity doctor --model DIR` shows it), or compare without: --variants base",
            ),
        )
