"""By which rule an engine verifies its drafts among drawn tokens, as far as its settings say.

vLLM 0.27.1 to 0.32.0: `draft_sample_method` and `rejection_sample_method` of `speculative_config`
(vllm/config/speculative.py); vllm-ascend 0.23.0: `rejection_sampler_config` of `additional_config` (ascend_config.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.records.engine_settings import asked_of, speculative_settings
from parity.records.objects import object_of


def accepts_at_its_probability(engine: Mapping[str, Any]) -> bool:
    """Each draft is the drafter's best token, and accepted with the probability that the target gives it."""
    settings = speculative_settings(engine)
    by_the_rule = settings.get("rejection_sample_method") in (None, "standard", "strict")
    return bool(settings) and by_the_rule and _drafts_its_best(settings) and not _of_ascend(engine)


def draws_another_after_a_rejection(engine: Mapping[str, Any]) -> bool:
    """The token in a rejected draft's place is never that draft. It is drawn from max(p - q, 0), with p the target's
    probabilities and q the drafter's: where q is 1 for the draft, nothing is left of it; else where rejecting rests on
    p / q (v1/sample/rejection_sampler.py, v1/worker/gpu/spec_decode/rejection_sampler_utils.py: `sample_recovered`,
    `_resample_kernel`)."""
    settings = speculative_settings(engine)
    method = settings.get("rejection_sample_method")
    if method == "synthetic":  # greedy requests take their best token, draft or not
        return False
    return _drafts_its_best(settings) or not (method == "block" or _of_ascend(engine))


def _drafts_its_best(settings: Mapping[str, Any]) -> bool:
    return settings.get("draft_sample_method") in (None, "greedy")


def _of_ascend(engine: Mapping[str, Any]) -> bool:
    """vllm-ascend's own rules: drafts verified together, or accepted where the target is unsure."""
    additions = [object_of(one.get("additional_config")) for one in (engine, asked_of(engine))]
    rules = [object_of(one.get("rejection_sampler_config")) for one in additions]
    return any(one.get(name) for one in rules for name in ("enable_block_verify", "enable_entropy_verify"))
