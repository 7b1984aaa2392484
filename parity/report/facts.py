"""What can be said about a case, told apart: what was measured, what is inferred, what nobody looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parity.comparator.population.power import requests_needed
from parity.messages import Parameter
from parity.report.escape import code, inline, public, without_paths
from parity.report.texts import Texts
from parity.text import clip, visible
from parity.view import ArmView, RunView

TITLE = 240
"""Characters of a title; GitHub takes 256."""

SETTINGS = (
    "speculative_config",
    "async_scheduling",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "enforce_eager",
    "cudagraph_mode",
    "compilation_mode",
    "mamba_cache_mode",
    "dtype",
    "max_num_seqs",
    "max_num_batched_tokens",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "model_runner",
)
"""Engine settings that have decided faults before; the values that were run are named as the only ones."""


def version_line(arm: ArmView) -> str:
    """ "vllm 0.32.0, torch 2.13.0+cpu": the packages that decide numerics, as far as they are known."""
    wanted = ("vllm", "vllm_ascend", "vllm-ascend", "torch", "torch_npu", "torch-npu", "transformers", "triton")
    return ", ".join(f"{name} {arm.versions[name]}" for name in wanted if name in arm.versions)


def engine_version(view: RunView) -> str:
    """The engine of the accused arm, for the title."""
    arms = view.suspected or list(view.arms)
    names = ("vllm_ascend", "vllm-ascend", "vllm")
    found = [f"{name.replace('_', '-')} {arm.versions[name]}" for arm in arms for name in names if name in arm.versions]
    return found[0] if found else "vLLM"


def title(view: RunView, texts: Texts) -> str:
    """One plain line, without Markdown."""
    chosen, arms = view.chosen, view.suspected or view.candidates or list(view.arms)
    arm = arms[0]
    common: dict[str, Parameter] = {
        "setting": " and ".join(_setting(one) for one in arms),
        "model": view.run.model,
        "version": engine_version(view),
        "completions": arm.completions,
        "near": arm.count("near_tie"),
        "corrupt": arm.count("corrupt"),
    }
    if chosen is None or not chosen.is_corrupt:
        text = texts("title.benign", **common)
    elif not view.asked_for_finding and not view.run.greedy and not common["corrupt"]:
        text = texts("title.samples", **common)
    elif view.asked_for_finding:
        kinds = texts.kind(chosen.kind)
        name = "title.finding.whole" if chosen.position is None else "title.finding"
        text = texts(name, kinds=kinds, position=chosen.position, **common)
    else:
        text = texts("title.fault", kinds=", ".join(texts.kind(kind) for kind in list(arm.corrupt)[:3]), **common)
    return clip(without_paths(visible(text)), TITLE)


def _setting(arm: ArmView) -> str:
    known = arm.settings
    speculative = known.get("speculative_config")
    method = known.get("speculative_method") or (speculative or {}).get("method")
    drafts = known.get("num_speculative_tokens") or (speculative or {}).get("num_speculative_tokens")
    return f"{arm.name} ({method} k={drafts})" if method else arm.name


def kinds_in_words(corrupt: Mapping[str, int], texts: Texts) -> str:
    """ "tokens lost (3), garbled text (1)"."""
    return ", ".join(f"{inline(texts.kind(kind))} ({count})" for kind, count in corrupt.items())


def sampling_in_words(view: RunView) -> str:
    """ "greedy, max_tokens 32": what was asked for, without what was left at its default."""
    temperature = view.run.sampling.get("temperature", 0)
    parts = ["greedy" if not temperature else f"temperature {temperature}"]
    parts += [f"{name} {view.run.sampling[name]}" for name in ("max_tokens", "n") if view.run.sampling.get(name)]
    return inline(", ".join(parts))


def measured(view: RunView, texts: Texts) -> Iterator[str]:
    baseline = code(view.run.baseline)
    for arm in [*view.candidates, *view.controls]:
        yield texts(
            "measured.counts",
            arm=code(arm.name),
            completions=arm.completions,
            identical=arm.count("identical"),
            baseline=baseline,
            near=arm.count("near_tie"),
            corrupt=arm.count("corrupt"),
            kinds=f" ({kinds_in_words(arm.corrupt, texts)})" if arm.corrupt else "",
        )
    chosen = view.chosen
    if chosen is not None and chosen.position is not None and chosen.gap is not None:
        yield texts(
            "measured.token",
            request=code(chosen.request),
            position=chosen.position,
            arm=code(chosen.arm),
            token=code(view.text.token(chosen.token)) if chosen.token is not None else "-",
            gap=f"{chosen.gap:.2f}",
        )
    for arm in [*view.candidates, *view.controls]:
        figures = arm.figures
        if figures.drafted and arm.acceptance_rate is not None:
            yield texts(
                "measured.accept",
                arm=code(arm.name),
                accepted=figures.accepted,
                drafted=figures.drafted,
                rate=f"{arm.acceptance_rate:.0%}",
            )
    yield from _shared_length(view, texts)
    rounds = view.run.rounds
    for arm in view.suspected if rounds > 1 and not view.asked_for_finding else []:
        seen = {one.key.round for one in view.corrupt if one.arm == arm.name and not one.of_run}
        yield texts("measured.again", arm=code(arm.name), seen=len(seen), rounds=rounds)
    floors = [arm.figures for arm in view.candidates if arm.figures.floor_gap is not None]
    for floor in floors[:1]:
        yield texts("measured.floor", largest=floor.floor_gap, tokens=floor.floor_tokens)


def _shared_length(view: RunView, texts: Texts) -> Iterator[str]:
    """Where all corrupt requests have prompts of one length and there are others: a hint that people look for."""
    if view.asked_for_finding:
        return
    lengths = {request.name: len(request.prompt_token_ids) for request in view.requests}
    for arm in view.suspected:
        bad = {one.request for one in view.corrupt if one.arm == arm.name} & set(lengths)
        seen = {lengths[name] for name in bad}
        same = sum(length in seen for length in lengths.values())
        if len(seen) == 1 and len(bad) > 1 and same < len(lengths):
            yield texts(
                "measured.length",
                arm=code(arm.name),
                tokens=seen.pop(),
                bad=len(bad),
                same=same,
                others=len(lengths) - same,
            )


def inferred(view: RunView, texts: Texts) -> Iterator[str]:
    chosen = view.chosen
    if chosen is not None and chosen.is_corrupt:
        yield texts("inferred.kind", kind=code(chosen.kind), why=inline(texts.said(chosen.why)))
    for arm in view.suspected:
        if arm.count("corrupt") and arm.corrupt_interval is not None:
            low, high = arm.corrupt_interval
            yield texts("inferred.rate", low=f"{low:.2%}", high=f"{high:.2%}")
    if view.suspect is not None:
        yield texts(
            "inferred.suspect", name=inline(texts.said(view.suspect.name)), why=inline(texts.said(view.suspect.why))
        )
    yield texts("inferred.none")


def unchecked(view: RunView, texts: Texts) -> Iterator[str]:
    backends = sorted({arm.backend for arm in view.arms})
    yield texts("unchecked.backends", backends=", ".join(map(code, backends)))
    versions = sorted({version for one in view.siblings for version in one.versions.values()} - {"unknown"})
    if versions:
        yield texts("unchecked.versions", versions=inline("; ".join(versions)))
    if "transformers" not in backends:
        yield texts("unchecked.transformers")
    yield texts("unchecked.reference")
    for name in SETTINGS:
        values = dict.fromkeys(_value(arm.settings.get(name)) for arm in view.arms)
        values.pop("None", None)
        if values:
            yield texts("unchecked.setting", name=code(name), values=", ".join(code(value) for value in values))
    if view.run.greedy:
        yield texts("unchecked.sampling")
    for arm in view.candidates:
        bound = arm.figures.not_excluded
        if bound is not None and 0 < bound < 1:
            yield texts(
                "unchecked.rarer", arm=code(arm.name), bound=f"{bound:.2g}", needed=f"{requests_needed(bound / 10):,}"
            )
    if view.chosen is not None and view.chosen.is_corrupt and len(view.requests) > 1:
        yield texts("unchecked.reduced")


def controls(view: RunView, texts: Texts) -> Iterator[str]:
    for arm in view.arms:
        if arm.is_baseline:
            yield texts("control.baseline", arm=code(arm.name), completions=arm.completions)
        elif arm.is_control and arm not in view.suspected:
            name = "control.caught" if arm.corrupt else "control.missed"
            yield texts(name, arm=code(arm.name), corrupt=arm.count("corrupt"), completions=arm.completions)
        elif arm.is_clean:
            yield texts(
                "control.clean",
                arm=code(arm.name),
                completions=arm.completions,
                identical=arm.count("identical"),
                near=arm.count("near_tie"),
            )
    if not any(arm.is_clean for arm in view.arms) and view.corrupt:
        yield texts("control.none")


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key}={public(item)}" for key, item in value.items())
    return str(public(value))
