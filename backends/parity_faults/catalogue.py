"""The faults by name: what each emulates, where it is planted, what it needs.

Standard library only, Python 3.9 or newer: this file is read by the launcher, where no engine exists, and
by the engine, where parity does not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Fault:
    """One fault. `layer` is where it sits: "runner" (model runner, the model sees the wrong tokens
    or states), "output" (between scheduler and caller, the model's context stays right), "request" (what was
    asked is lost on the way in; its rate is a share of the requests)."""

    name: str
    summary: str
    emulates: str
    """Public threads with this symptom, `repository#number`; empty where there is none."""
    hook: str
    """File and function of vLLM 0.32.0 that is wrapped."""
    layer: str
    needs_speculation: bool
    expected: tuple[str, ...]
    """Kinds of parity that describe what it does to a completion; empty for a control that must pass."""
    needs: str = ""
    """What else the run needs, in words; empty when nothing."""
    options: tuple[tuple[str, int], ...] = ()
    """Options of its own with their defaults."""
    whole_run: bool = False
    """It moves the numbers of every row, few of them far: what shows is the run, not a row."""
    usual_rate: float = 0.1
    """As a positive control, where no rate is given."""

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "summary": self.summary,
            "emulates": self.emulates,
            "hook": self.hook,
            "layer": self.layer,
            "needs_speculation": self.needs_speculation,
            "expected": list(self.expected),
            "needs": self.needs,
            "options": dict(self.options),
            "whole_run": self.whole_run,
        }


_SAMPLE = "v1/worker/gpu_model_runner.py GPUModelRunner._sample"
_BUILD = "v1/attention/backends/gdn_attn.py GDNAttentionMetadataBuilder.build"
_OUTPUT = "v1/core/sched/scheduler.py Scheduler.update_from_output"
_ADMIT = "v1/core/sched/scheduler.py Scheduler.add_request"
_SCHEDULE = "v1/core/sched/scheduler.py Scheduler.schedule"
_PREPARE = "v1/worker/gpu_model_runner.py GPUModelRunner._prepare_inputs"
_HAND = "v1/worker/gpu_model_runner.py GPUModelRunner.sample_tokens"
_ANY_BUILD = "v1/attention/backend.py AttentionMetadataBuilder.build"
_TWO = "two rows in the batch"
_LINEAR = "model_executor/layers/linear.py UnquantizedLinearMethod.apply"

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault(
            "accepted_counts",
            "a row's recurrent state is taken up at another row's count of accepted tokens",
            "vllm#45100",
            _BUILD,
            "runner",
            True,
            ("garbled", "unjustified", "omission", "duplication", "early_stop"),
            needs="a hybrid model (gated delta net) and two rows with different counts",
        ),
        Fault(
            "unstable_order",
            "speculative and ordinary tokens of a mixed batch are put apart by an unstable sort",
            "vllm-ascend#4930, vllm#30631",
            _BUILD,
            "runner",
            True,
            ("garbled", "unjustified", "duplication", "omission", "early_stop"),
            needs="a hybrid model and steps that mix drafts with prefill: more prompts than max_num_seqs",
        ),
        Fault(
            "state_not_reset",
            "a request starts from another request's recurrent state",
            "vllm-ascend#13863, llama.cpp#28286",
            _BUILD,
            "runner",
            False,
            ("garbled", "unjustified", "row_leak", "early_stop"),
            needs="a hybrid model and requests that start after others: more prompts than max_num_seqs",
        ),
        Fault(
            "unverified_drafts",
            "a row's drafts are accepted although the model rejected them",
            "vllm#36872, vllm-ascend#17338",
            _SAMPLE,
            "runner",
            True,
            ("unjustified", "garbled"),
        ),
        Fault(
            "row_swap",
            "two rows exchange the tokens sampled in one step",
            "vllm#14645, vllm#46669",
            _SAMPLE,
            "runner",
            False,
            ("unjustified", "garbled", "row_leak"),
            needs="two rows in the batch",
        ),
        Fault(
            "row_leak",
            "a row receives the tokens of another row for `span` steps",
            "vllm#14645, llama.cpp#28286",
            _SAMPLE,
            "runner",
            False,
            ("row_leak", "garbled"),
            needs="two rows in the batch",
            options=(("span", 6),),
        ),
        Fault(
            "stale_chunk",
            "the tokens of the step before are read again; the model sees them too",
            "tenstorrent/vllm#396, vllm#30631",
            _SAMPLE,
            "runner",
            False,
            ("duplication", "unjustified", "garbled"),
        ),
        Fault(
            "loop",
            "a row emits its last token again for `span` steps",
            "vllm#36872, vllm#55357, vllm-ascend#10901",
            _SAMPLE,
            "runner",
            False,
            ("repetition", "duplication", "garbled"),
            options=(("span", 16),),
        ),
        Fault(
            "garbled_row",
            "the logits of one row are noise for `span` steps",
            "vllm#46669, vllm-ascend#17338",
            _SAMPLE,
            "runner",
            False,
            ("garbled", "unjustified"),
            options=(("span", 4),),
        ),
        Fault(
            "early_eos",
            "a sampled token is replaced by the end-of-sequence token",
            "vllm#41493, vllm#43650",
            _SAMPLE,
            "runner",
            False,
            ("early_stop",),
            needs="ignore_eos off",
        ),
        Fault(
            "chunk_twice",
            "the tokens of one step are handed out twice; the model sees them once",
            "TensorRT-LLM#3753, vllm-ascend#4930",
            _OUTPUT,
            "output",
            True,
            ("duplication", "overrun"),
        ),
        Fault(
            "bonus_lost",
            "the bonus token of a fully accepted step is not handed out; the model has seen it",
            "vllm-ascend#13863",
            _OUTPUT,
            "output",
            True,
            ("omission", "early_stop"),
        ),
        Fault(
            "wrong_logprobs",
            "a row's logprobs are those of its neighbour in the batch",
            "vllm#38711",
            _SAMPLE,
            "runner",
            False,
            ("logprob_mismatch",),
            needs="logprobs recorded, as they are unless --logprobs none",
        ),
        Fault(
            "logit_bias",
            "the logits of one token id in `share` are `millinats` thousandths of a nat too high",
            "",
            _SAMPLE,
            "runner",
            False,
            ("numerics", "unjustified"),
            options=(("millinats", 100), ("share", 8)),
            whole_run=True,
            usual_rate=1.0,
        ),
        Fault(
            "weight_scale",
            "what one layer's output projection gives is `permille` thousandths too large",
            "vllm#39764",
            _LINEAR,
            "runner",
            False,
            ("numerics", "unjustified"),
            needs="a projection that is not quantised",
            options=(("permille", 10),),
            whole_run=True,
            usual_rate=1.0,
        ),
        Fault(
            "weight_quant",
            "the weights of one layer's output projection are rounded to `bits` bits with one scale (`fp8=1`: e4m3)",
            "vllm#39764",
            _LINEAR,
            "runner",
            False,
            ("numerics", "unjustified"),
            needs="a projection that is not quantised",
            options=(("bits", 8), ("fp8", 0)),
            whole_run=True,
            usual_rate=1.0,
        ),
        Fault(
            "kv_fp8",
            "keys and values of attention are rounded to 8 bits (e4m3) before they are kept",
            "vllm#41343, vllm#42179",
            "model_executor/layers/attention/attention.py Attention.forward",
            "runner",
            False,
            ("numerics", "unjustified"),
            needs="attention layers with keys and values",
            whole_run=True,
            usual_rate=1.0,
        ),
        Fault(
            "rope_off",
            "positions are one too small for all tokens of a step",
            "vllm#44698, vllm-ascend#11699",
            "v1/worker/gpu_model_runner.py GPUModelRunner.model.forward",
            "runner",
            False,
            ("numerics", "unjustified"),
            whole_run=True,
            usual_rate=0.05,
        ),
        Fault(
            "penalties_ignored",
            "a request's repetition, presence and frequency penalties are not applied",
            "vllm#18902",
            _ADMIT,
            "request",
            False,
            ("unjustified", "garbled", "repetition", "duplication"),
            needs="a penalty",
        ),
        Fault(
            "temperature_leak",
            "a request is sampled at the temperature of another one, greedily where all have the same",
            "vllm-ascend#5417",
            _ADMIT,
            "request",
            False,
            ("unjustified", "garbled"),
            needs="a temperature above 0",
        ),
        Fault(
            "bad_words_ignored",
            "a request's bad words may be said",
            "vllm#31908",
            _ADMIT,
            "request",
            False,
            ("forbidden_token", "unjustified", "garbled"),
            needs="bad_words",
        ),
        Fault(
            "allowed_ignored",
            "a request may say tokens that are not among its allowed ones",
            "vllm#57986",
            _ADMIT,
            "request",
            False,
            ("forbidden_token", "unjustified", "garbled"),
            needs="allowed_token_ids",
        ),
        Fault(
            "min_tokens_ignored",
            "a request may end before its min_tokens",
            "vllm#15967",
            _ADMIT,
            "request",
            False,
            ("early_stop", "forbidden_token"),
            needs="min_tokens, and a model that would end before",
        ),
        Fault(
            "stop_ignored",
            "a request goes on after its stop strings and stop tokens",
            "vllm#57052",
            _ADMIT + ", v1/engine/detokenizer.py BaseIncrementalDetokenizer.__init__",
            "request",
            False,
            ("overrun", "text_mismatch"),
            needs="stop or stop_token_ids",
        ),
        Fault(
            "grammar_ignored",
            "a request may say what its structured outputs refuse",
            "vllm#36138",
            _ADMIT,
            "request",
            False,
            ("grammar_violation",),
            needs="structured_outputs",
        ),
        Fault(
            "logits_noise",
            "every logit moves by up to `ulps` units in the last place of bf16: a control that must pass",
            "vllm#35204",
            _SAMPLE,
            "runner",
            False,
            (),
            options=(("ulps", 1),),
        ),
    )
}

FAULTS.update(
    (
        name,
        Fault(
            name, summary, "", hook, "runner", speculates, ("violation", "unjustified", "garbled", "early_stop"), needs
        ),
    )
    for name, hook, speculates, needs, summary in (
        ("computed_off", _SCHEDULE, True, "", "the scheduler says one computed token less than a row has"),
        ("drafts_off", _SCHEDULE, True, "", "a draft is scheduled that the drafter did not propose"),
        ("position_off", _PREPARE, False, "", "the first position of a row is one too large"),
        ("input_off", _PREPARE, False, "", "the first input token of a row is another one"),
        ("logits_off", _PREPARE, True, "", "a row's first logits are those of the token before it"),
        ("sampler_drafts_off", _PREPARE, True, "", "the sampler verifies another draft than the model has seen"),
        ("query_start_off", _ANY_BUILD, True, _TWO, "a row's stretch of the batch ends in its neighbour's"),
        ("row_map", _ANY_BUILD, False, _TWO, "two requests have each other's row in the batch's index"),
        ("block_table_off", _ANY_BUILD, False, _TWO, "a row's first block is another row's"),
        ("sequence_length_off", _ANY_BUILD, False, "", "a row's sequence length is one too small"),
        ("slot_off", _ANY_BUILD, False, "", "a token's keys and values go into another place of its block"),
        ("slot_shared", _ANY_BUILD, False, _TWO, "a token's keys and values go where another row's go"),
        ("state_slots_exchanged", _BUILD, True, _TWO, "two rows have each other's state slots for a step"),
        (
            "state_overwritten",
            _BUILD,
            True,
            _TWO,
            "a row's recurrent states are overwritten by another's between steps",
        ),
        (
            "kv_overwritten",
            _ANY_BUILD,
            False,
            _TWO,
            "a row's keys and values are overwritten by another's between steps",
        ),
        ("kept_off", _HAND, True, "a hybrid model", "the accepted count kept for the next step is one too large"),
        ("buffer_off", _HAND, False, "", "the last token in the runner's buffer is another than was handed out"),
    )
)
"""Bookkeeping (`bookkeeping.py`): one number of one row-step, right again in the next."""

_FORWARD = "forward hooks on one module of the model"
FAULTS.update(
    (
        name,
        Fault(
            name, summary, "", _FORWARD, "runner", name.startswith("drafter"), expected, needs,
            options=(("permille", 300), ("every", 0)), usual_rate=0.05,
        ),
    )
    for name, needs, summary in (
        ("norm_off", "", "what a norm gives for a row is too large"),
        ("gates_off", "a hybrid model", "the gates of a gated delta net are partly others"),
        ("gdn_state_off", "a hybrid model", "a row's recurrent state is partly another"),
        ("conv_state_off", "a hybrid model", "a row's convolution state is partly another"),
        ("kv_entry_off", "attention", "the key and value of one earlier token are partly others"),
        ("kv_head_off", "attention", "one head's keys and values are partly others"),
        ("rope_row_off", "attention", "a row's positions are too large in the rotary embedding"),
        ("attention_off", "attention", "what attention gives for a row is too large"),
        ("mlp_off", "", "what an MLP (of experts, the shared one) gives for a row is partly something else"),
        ("experts_off", "experts", "what the experts give for a row is partly something else"),
        ("router_off", "experts", "the router's logits of a row are partly its neighbours'"),
        ("lm_head_off", "", "the logits of a row are partly their neighbours'"),
        ("drafter_off", "a drafter that is a model", "what the drafter gives for a row is partly something else"),
        ("drafter_input_off", "a drafter that is a model", "what a drafter joins for a row is partly something else"),
    )
    for expected in ((() if name.startswith("drafter") else ("located_fault", "unjustified", "garbled", "early_stop")),)
)  # fmt: skip
"""Arithmetic (`arithmetic.py`): `permille` thousandths of one row in one step, with `every=1` of all rows. That of the
drafter is a control that
must pass, for what it drafts is verified."""


def describe() -> list[dict[str, Any]]:
    """Every fault: name, summary, the threads it emulates, its hook, what it needs, the kinds expected."""
    return [fault.to_json() for fault in FAULTS.values()]


def prompt_key(token_ids: Iterable[int]) -> str:
    """Names a prompt in the log of plantings, which knows engine requests only: 16 hexadecimal digits."""
    text = ",".join(str(int(token)) for token in token_ids)
    return hashlib.blake2b(text.encode("ascii"), digest_size=8).hexdigest()
