"""Did each engine do what the plan pinned? An engine may overrule a setting in silence.

A setting that did not resolve as asked means that the run tested something else than it set out to: never a PASS.
A setting that this version has no name for is told, not held against it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from parity.records import Header, Json

RESOLVED_AS: Mapping[str, str] = {
    **{
        name: name
        for name in (
            "dtype",
            "quantization",
            "enforce_eager",
            "max_model_len",
            "max_num_seqs",
            "max_num_batched_tokens",
            "enable_chunked_prefill",
            "enable_prefix_caching",
            "async_scheduling",
            "scheduling_policy",
            "mamba_cache_mode",
            "kv_cache_dtype",
            "block_size",
            "seed",
            "logprobs_mode",
            "generation_config",
            "tensor_parallel_size",
            "pipeline_parallel_size",
            "data_parallel_size",
            "cudagraph_capture_sizes",
        )
    },
    "compilation_config.mode": "compilation_mode",
    "compilation_config.cudagraph_mode": "cudagraph_mode",
    "compilation_config.cudagraph_capture_sizes": "cudagraph_capture_sizes",
    "speculative_config.method": "speculative_method",
    "speculative_config.num_speculative_tokens": "num_speculative_tokens",
}
"""Asked name (nested ones with a dot) to the name that the header has for what came of it."""

LEFT_TO_THE_ENGINE = (None, "auto")

HARMLESS = frozenset({"per_request_spec_decode_metrics", "swap_space", "VLLM_USE_V2_MODEL_RUNNER"})
"""Not known to a version that has nothing of the kind: without them it does what was asked all the same."""

SPELLINGS = {"half": "float16", "float": "float32"}


def overruled(header: Header) -> dict[str, tuple[Json, Json]]:
    """Settings by name, as (asked, resolved), that did not resolve as they were asked."""
    asked = header.engine.get("asked")
    if not isinstance(asked, Mapping):
        return {}
    found: dict[str, tuple[Json, Json]] = {}
    for name, value in _flat(asked):
        key = RESOLVED_AS.get(name)
        if key is None or key not in header.engine or value in LEFT_TO_THE_ENGINE:
            continue
        resolved = header.engine[key]
        if not _same(name, value, resolved):
            found[name] = (value, resolved)
    return found


def reasons(*headers: Header) -> list[str]:
    """Why the run is inconclusive: one sentence for each arm that was overruled."""
    return [
        f"{header.arm} was not run as asked: "
        + ", ".join(f"{name} is {resolved} instead of {asked}" for name, (asked, resolved) in found.items())
        for header in headers
        if (found := overruled(header))
    ]


def notes(*headers: Header) -> list[str]:
    """What a version did not know, or knew by another name."""
    told = []
    for header in headers:
        dropped = {name: why for name, why in _mapping(header.engine.get("dropped")).items() if name not in HARMLESS}
        if dropped:
            told.append(f"{header.arm} ran without {', '.join(f'{name} ({why})' for name, why in dropped.items())}")
        translated = _mapping(header.engine.get("translated"))
        if translated:
            words = ", ".join(f"{old} as {new}" for old, new in translated.items())
            told.append(f"{header.arm}: settings by this version's names: {words}")
    return told


def _flat(values: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, Json]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _same(name: str, asked: Json, resolved: Json) -> bool:
    if name == "speculative_config.method" and str(asked).endswith("_mtp"):
        return resolved in (asked, "mtp")  # the families' own names became one
    if isinstance(asked, bool) or isinstance(resolved, bool) or not isinstance(asked, str):
        return bool(asked == resolved)
    plain = str(resolved).removeprefix("torch.").lower()
    return SPELLINGS.get(asked.lower(), asked.lower().removeprefix("torch.")) == plain


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}
