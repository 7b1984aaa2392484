"""What releases of vllm-ascend and vLLM cannot do, as rows: for the doctor, and for a worker before its engine starts.

Read from the released sources, never met on a device. An engine says each of these itself, minutes later and in the
middle of a traceback, or does not start at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Optional

from parity.records.engine_settings import speculative_settings
from parity_backends.worker.sentences import Sentence, message

from .arguments import Table, covers
from .checkpoints import has_linear_attention, linear_head_sizes, model_type_of
from .environment import said_by

REMEDY = "0.18.0"
"""The first release that has none of these limits; vllm-ascend's page on Qwen3-Next calls MTP stable from 0.16.0."""


class Limit(NamedTuple):
    """One thing that some releases cannot do."""

    name: str
    releases: str
    """Of vllm-ascend, as in the table of arguments."""
    met: Callable[[Mapping[str, Any], Mapping[str, Any]], bool]
    """Whether an engine with these arguments of `vllm.LLM`, for a checkpoint of this config.json, would meet it."""
    why: Sentence
    of_mtp: bool = True
    """It is about speculation."""
    ends: bool = True
    """The engine does not start; else it is only not to be relied on."""


def _drafts(engine: Mapping[str, Any]) -> bool:
    method = str(speculative_settings(engine).get("method"))
    return method == "mtp" or method.endswith("_mtp")


def _of_family(config: Mapping[str, Any], *beginnings: str) -> bool:
    return str(model_type_of(config)).startswith(beginnings)


ASCEND_LIMITS = (
    Limit(
        # vllm_ascend/spec_decode/__init__.py and mtp_proposer.py, 0.11.0
        "deepseek_only",
        "0.11.0-0.11.0",
        lambda engine, config: _drafts(engine) and not _of_family(config, "deepseek"),
        message("vllm.limit.deepseek_only", "its MTP is DeepSeek's alone"),
    ),
    Limit(
        # `_MTP_MODELS` of vllm_ascend/spec_decode/mtp_proposer.py, 0.12.0rc1
        "listed_mtp",
        "0.12.0-0.12.0",
        lambda engine, config: (
            _drafts(engine) and not _of_family(config, "deepseek", "qwen3_next") and not has_linear_attention(config)
        ),
        message("vllm.limit.listed_mtp", "it has MTP for DeepSeek and Qwen3-Next alone"),
    ),
    Limit(
        # vllm_ascend/worker/model_runner_v1.py, 0.12.0rc1 and 0.13.0
        "hybrid_mtp",
        "0.12.0-0.13.0",
        lambda engine, config: (
            _drafts(engine) and has_linear_attention(config) and not _of_family(config, "qwen3_next")
        ),
        message("vllm.limit.hybrid_mtp", "of hybrid models it has MTP for Qwen3-Next alone"),
    ),
    Limit(
        # the same file, 0.11.0 to 0.16.0rc1
        "hybrid_prefix_caching",
        "0.11.0-0.16.0",
        lambda engine, config: bool(engine.get("enable_prefix_caching")) and has_linear_attention(config),
        message("vllm.limit.hybrid_prefix_caching", "it has no prefix caching for hybrid models"),
        of_mtp=False,
    ),
    Limit(
        # its test of Qwen3-Next with MTP is skipped there: "Failed with CANN8.5, fix me"
        "untested_mtp",
        "0.13.0-0.13.0",
        lambda engine, config: _drafts(engine) and _of_family(config, "qwen3_next"),
        message("vllm.limit.untested_mtp", 'its own test of Qwen3-Next\'s MTP is skipped ("Failed with CANN8.5")'),
        ends=False,
    ),
)


FLASHINFER_HEAD_SIZE = 128
"""The only head size that FlashInfer's prefill of gated delta networks is made for on Hopper, and vLLM takes it there
without looking (`_resolve_gdn_prefill_backend`, 0.18.0 to 0.33.0). flashinfer 0.6.12 then reads and writes a state of
128 x 128 for each head (`prefill_kernel_delta_rule_sm90.cuh`), 0.7.0.post1 raises."""

NO_CHOICE = ((0, 17), (0, 18))
"""vLLM, from the first of these releases, before the second: that kernel, and no argument to take another
(`models/qwen3_next.py:156`, 0.17.1)."""


def other_heads(config: Mapping[str, Any]) -> list[int]:
    """Sizes of heads that FlashInfer's prefill is not made for."""
    return sorted(linear_head_sizes(config) - {FLASHINFER_HEAD_SIZE})


def refused_by_hopper(
    number: tuple[int, ...], config: Mapping[str, Any], capability: Optional[str]
) -> Optional[Sentence]:
    """Why this checkpoint cannot run on a card of this compute capability ("9.0") with this release of vLLM."""
    sizes = other_heads(config)
    if not (sizes and NO_CHOICE[0] <= number < NO_CHOICE[1] and str(capability).startswith("9.")):
        return None
    return message(
        "vllm.other_heads",
        "vLLM {version} takes FlashInfer's prefill of gated delta networks on this card, which is made for heads of "
        "{size}, and this checkpoint has {sizes}; take 0.18.0 or newer",
        version=".".join(str(part) for part in number),
        size=FLASHINFER_HEAD_SIZE,
        sizes=sizes,
    )


def limits_met(ascend: tuple[int, ...], engine: Mapping[str, Any], config: Mapping[str, Any]) -> list[Limit]:
    """Those that an engine of this vllm-ascend (`arguments.release`) would meet; () is another platform."""
    return [limit for limit in ASCEND_LIMITS if ascend and covers(limit.releases, ascend) and limit.met(engine, config)]


def refusal(table: Table, engine: Mapping[str, Any], config: Mapping[str, Any]) -> Optional[Sentence]:
    """Why this installed engine would not start so, or not be relied on, and what to do; None where it would."""
    ends = [limit.why for limit in limits_met(table.ascend_number, engine, config) if limit.ends]
    if ends:
        release = ".".join(str(part) for part in table.ascend_number)
        return message(
            "vllm.ascend_cannot",
            "vllm-ascend {version} cannot run this: {why}; take {newer} or newer",
            version=release,
            why=ends,
            newer=REMEDY,
        )
    if table.ascend or not other_heads(config) or not NO_CHOICE[0] <= table.number < NO_CHOICE[1]:
        return None
    found = said_by("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")
    return refused_by_hopper(table.number, config, (found or "").strip().split("\n")[0])
