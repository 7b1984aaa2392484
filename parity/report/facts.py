"""What can be said about a case, told apart: what was measured, what is inferred, what nobody looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parity.comparator.population.power import requests_needed
from parity.messages import Parameter
from parity.records import Json
from parity.report.case import ArmCase, Case, FindingCase
from parity.report.escape import code, inline, public, without_paths
from parity.report.texts import Texts
from parity.text import clip, visible

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


def settings(arm: ArmCase) -> dict[str, Json]:
    """The engine settings of an arm: what it resolved to, else what it was asked for."""
    asked = arm.row.engine.get("asked")
    merged = {**(asked if isinstance(asked, Mapping) else {}), **arm.row.engine}
    merged.pop("asked", None)
    return {key: value for key, value in merged.items() if value is not None}


def version_line(arm: ArmCase) -> str:
    """ "vllm 0.32.0, torch 2.13.0+cpu": the packages that decide numerics, as far as they are known."""
    wanted = ("vllm", "vllm_ascend", "vllm-ascend", "torch", "torch_npu", "torch-npu", "transformers", "triton")
    return ", ".join(f"{name} {arm.versions[name]}" for name in wanted if name in arm.versions)


def engine_version(case: Case) -> str:
    """The engine of the accused arm, for the title."""
    arms = case.suspected or list(case.arms)
    names = ("vllm_ascend", "vllm-ascend", "vllm")
    found = [f"{name.replace('_', '-')} {arm.versions[name]}" for arm in arms for name in names if name in arm.versions]
    return found[0] if found else "vLLM"


def title(case: Case, texts: Texts) -> str:
    """One plain line, without Markdown."""
    chosen, arms = case.chosen, case.suspected or case.candidates or list(case.arms)
    arm = arms[0]
    common: dict[str, Parameter] = {
        "setting": " and ".join(_setting(one) for one in arms),
        "model": case.run.model,
        "version": engine_version(case),
        "completions": arm.completions,
        "near": count(arm, "near_tie"),
        "corrupt": count(arm, "corrupt"),
    }
    if chosen is None or not chosen.is_corrupt:
        text = texts("title.benign", **common)
    elif not case.asked_for_finding and case.sampling.get("temperature") and not common["corrupt"]:
        text = texts("title.samples", **common)
    elif case.asked_for_finding:
        kinds = texts.kind(chosen.row.kind)
        name = "title.finding.whole" if chosen.row.position is None else "title.finding"
        text = texts(name, kinds=kinds, position=chosen.row.position, **common)
    else:
        text = texts("title.fault", kinds=", ".join(texts.kind(kind) for kind in list(arm.corrupt)[:3]), **common)
    return clip(without_paths(visible(text)), TITLE)


def _setting(arm: ArmCase) -> str:
    known = settings(arm)
    speculative = known.get("speculative_config")
    method = known.get("speculative_method") or (speculative or {}).get("method")
    drafts = known.get("num_speculative_tokens") or (speculative or {}).get("num_speculative_tokens")
    return f"{arm.name} ({method} k={drafts})" if method else arm.name


def kinds_in_words(corrupt: Mapping[str, int], texts: Texts) -> str:
    """ "tokens lost (3), garbled text (1)"."""
    return ", ".join(f"{inline(texts.kind(kind))} ({count})" for kind, count in corrupt.items())


def count(arm: ArmCase, name: str) -> int:
    return int(arm.classes.get(name, 0))


def sampling_in_words(case: Case) -> str:
    """ "greedy, max_tokens 32": what was asked for, without what was left at its default."""
    temperature = case.sampling.get("temperature", 0)
    parts = ["greedy" if not temperature else f"temperature {temperature}"]
    parts += [f"{name} {case.sampling[name]}" for name in ("max_tokens", "n") if case.sampling.get(name)]
    return inline(", ".join(parts))


def measured(case: Case, texts: Texts) -> Iterator[str]:
    baseline = code(case.run.baseline)
    for arm in [*case.candidates, *case.controls]:
        yield texts(
            "measured.counts",
            arm=code(arm.name),
            completions=arm.completions,
            identical=count(arm, "identical"),
            baseline=baseline,
            near=count(arm, "near_tie"),
            corrupt=count(arm, "corrupt"),
            kinds=f" ({kinds_in_words(arm.corrupt, texts)})" if arm.corrupt else "",
        )
    chosen = case.chosen
    if chosen is not None and chosen.row.position is not None and chosen.row.gap is not None:
        token = chosen.row.evidence.get("candidate_token")
        yield texts(
            "measured.token",
            request=code(chosen.row.request),
            position=chosen.row.position,
            arm=code(chosen.row.arm),
            token=code(case.tokens.token(int(token))) if isinstance(token, int) else "-",
            gap=f"{chosen.row.gap:.2f}",
        )
    for arm in [*case.candidates, *case.controls]:
        proof = arm.row.stats.get("exercised")
        drafted = proof.get("draft_tokens") if isinstance(proof, Mapping) else None
        if isinstance(proof, Mapping) and drafted and arm.row.acceptance_rate is not None:
            yield texts(
                "measured.accept",
                arm=code(arm.name),
                accepted=proof.get("accepted_tokens"),
                drafted=drafted,
                rate=f"{arm.row.acceptance_rate:.0%}",
            )
    yield from _shared_length(case, texts)
    rounds = case.run.plan.get("rounds")
    for arm in case.suspected if isinstance(rounds, int) and rounds > 1 and not case.asked_for_finding else []:
        seen = {one.row.round for one in case.corrupt_findings() if one.row.arm == arm.name and one.row.request != "*"}
        yield texts("measured.again", arm=code(arm.name), seen=len(seen), rounds=rounds)
    for arm in case.candidates:
        floor = arm.row.stats.get("floor")
        if isinstance(floor, Mapping):
            yield texts("measured.floor", largest=floor.get("largest_gap"), tokens=floor.get("tokens"))
            break


def _shared_length(case: Case, texts: Texts) -> Iterator[str]:
    """Where all corrupt requests have prompts of one length and there are others: a hint that people look for."""
    if case.asked_for_finding:
        return
    lengths = {request.name: len(request.prompt_token_ids) for request in case.requests}
    for arm in case.suspected:
        bad = {one.row.request for one in case.corrupt_findings() if one.row.arm == arm.name} & set(lengths)
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


def inferred(case: Case, texts: Texts) -> Iterator[str]:
    chosen = case.chosen
    if chosen is not None and chosen.is_corrupt:
        yield texts("inferred.kind", kind=code(chosen.row.kind), why=inline(texts.said(chosen.why)))
    for arm in case.suspected:
        rates = arm.row.stats.get("rates")
        bounds = rates.get("corrupt") if isinstance(rates, Mapping) else None
        if isinstance(bounds, Mapping) and "low" in bounds and "high" in bounds:
            yield texts("inferred.rate", low=f"{bounds['low']:.2%}", high=f"{bounds['high']:.2%}")
    if case.suspect is not None:
        yield texts(
            "inferred.suspect", name=inline(texts.said(case.suspect.name)), why=inline(texts.said(case.suspect.why))
        )
    yield texts("inferred.none")


def unchecked(case: Case, texts: Texts) -> Iterator[str]:
    backends = sorted({arm.row.backend for arm in case.arms})
    yield texts("unchecked.backends", backends=", ".join(map(code, backends)))
    versions = sorted({versions for _, arms in case.siblings for versions in arms.values()} - {"unknown"})
    if versions:
        yield texts("unchecked.versions", versions=inline("; ".join(versions)))
    if "transformers" not in backends:
        yield texts("unchecked.transformers")
    yield texts("unchecked.reference")
    for name in SETTINGS:
        values = dict.fromkeys(_value(settings(arm).get(name)) for arm in case.arms)
        values.pop("None", None)
        if values:
            yield texts("unchecked.setting", name=code(name), values=", ".join(code(value) for value in values))
    if not case.sampling.get("temperature"):
        yield texts("unchecked.sampling")
    for arm in case.candidates:
        bound = arm.row.stats.get("fault_rate_not_excluded")
        if isinstance(bound, int | float) and 0 < bound < 1:
            yield texts(
                "unchecked.rarer", arm=code(arm.name), bound=f"{bound:.2g}", needed=f"{requests_needed(bound / 10):,}"
            )
    if case.chosen is not None and case.chosen.is_corrupt and len(case.requests) > 1:
        yield texts("unchecked.reduced")


def controls(case: Case, texts: Texts) -> Iterator[str]:
    for arm in case.arms:
        if arm.row.is_baseline:
            yield texts("control.baseline", arm=code(arm.name), completions=arm.completions)
        elif arm.is_control and arm not in case.suspected:
            name = "control.caught" if arm.corrupt else "control.missed"
            yield texts(name, arm=code(arm.name), corrupt=count(arm, "corrupt"), completions=arm.completions)
        elif arm.is_clean:
            yield texts(
                "control.clean",
                arm=code(arm.name),
                completions=arm.completions,
                identical=count(arm, "identical"),
                near=count(arm, "near_tie"),
            )
    if not any(arm.is_clean for arm in case.arms) and case.corrupt_findings():
        yield texts("control.none")


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key}={public(item)}" for key, item in value.items())
    return str(public(value))


def chosen_token(finding: FindingCase) -> int | None:
    """The candidate's token at the finding's place."""
    at, stream = finding.row.position, finding.candidate
    if at is None or stream is None or not 0 <= at < len(stream.token_ids):
        return None
    return int(stream.token_ids[at])
