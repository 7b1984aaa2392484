"""Faults in vllm-ascend 0.23.0's code, as text to replace; `emulated_faults.py` runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BACKEND = "ascend-emulated"


@dataclass(frozen=True)
class Edit:
    """`before` stands once in `file` of the package."""

    file: str
    before: str
    after: str


@dataclass(frozen=True)
class Fault:
    """`edits`: the release's code by what is said of it; RELEASED is run too. `options`: of the run that shows it."""

    says: str
    edits: Mapping[str, Sequence[Edit]]
    options: Sequence[str]
    model: str | None = None
    """A tiny family; None: the embedded trained Qwen3-Next."""
    variant: str = "mtp"
    """`mtp`, or `ngram`, which only a plan can ask for."""
    arms: Sequence[str] = ("--backends", BACKEND, "--variants", "base,mtp")
    """Options that give two of them."""
    hunted: bool = False
    """Asks the prompts of `emulated_hunt.py`, many of which begin alike, and not the suite's."""


RELEASED = "the release as it is"
PLANTED = "with the fault"

SMALL = ("--max-tokens", "16", "--engine", "max_model_len=320")

RUNNER, LAYER, SAMPLER = "worker/model_runner_v1.py", "ops/gdn.py", "sample/sampler.py"

ZERO_DRAFTS = (
    Edit(
        RUNNER,
        "                logits_indices = self.query_start_loc.gpu[1 : num_reqs + 1] - 1\n        else:\n",
        "                logits_indices = self.query_start_loc.gpu[1 : num_reqs + 1] - 1\n"
        "            if self.speculative_config:\n"
        "                computed = self.input_batch.num_computed_tokens_cpu[:num_reqs]\n"
        "                decodes = computed >= self.input_batch.num_prompt_tokens[:num_reqs]\n"
        "                self.num_decode_draft_tokens.np[:num_reqs] = np.where(decodes, 0, -1)\n"
        "                self.num_decode_draft_tokens.np[num_reqs:].fill(-1)\n"
        "                self.num_decode_draft_tokens.copy_to_gpu()\n"
        "        else:\n",
    ),
    Edit(
        RUNNER,
        "            spec_decode_metadata = self._calc_spec_decode_metadata(\n                num_draft_tokens,\n",
        "            computed = self.input_batch.num_computed_tokens_cpu[:num_reqs]\n"
        "            decodes = computed >= self.input_batch.num_prompt_tokens[:num_reqs]\n"
        "            num_decode_draft_tokens[(num_decode_draft_tokens < 0) & decodes] = 0\n"
        "            spec_decode_metadata = self._calc_spec_decode_metadata(\n                num_draft_tokens,\n",
    ),
    Edit(
        RUNNER,
        "            if use_spec_decode and isinstance(builder, GDNAttentionMetadataBuilder):\n",
        "            if self.speculative_config and isinstance(builder, GDNAttentionMetadataBuilder):\n",
    ),
)
"""Rows that decode without drafts are speculative, as in vLLM 0.32.0's `gpu_model_runner.py`."""

SLOT_PER_TOKEN = (
    Edit(
        LAYER,
        "            core_attn_out_spec = torch.ops._C_ascend.npu_recurrent_gated_delta_rule(\n",
        "            slots = spec_state_indices_tensor\n"
        "            newest = spec_causal_conv1d_meta.num_accepted_tokens.long() - 1\n"
        "            from_slots = slots.gather(1, newest.unsqueeze(1)).squeeze(1).long()\n"
        "            ssm_state[slots[:, 0].long()] = ssm_state[from_slots]\n"
        "            used = torch.arange(slots.shape[1], device=slots.device) < actual_seq_lengths[1:].unsqueeze(1)\n"
        "            core_attn_out_spec = torch.ops._C_ascend.npu_recurrent_gated_delta_rule(\n",
    ),
    Edit(
        LAYER,
        "                ssm_state_indices=spec_state_indices_tensor.flatten(),\n"
        "                num_accepted_tokens=spec_causal_conv1d_meta.num_accepted_tokens.to(torch.int32),\n",
        "                ssm_state_indices=slots[used],\n"
        "                num_accepted_tokens=torch.ones_like(newest, dtype=torch.int32),\n",
    ),
)
"""The operator's list of state slots has one for each token, and each row begins from its first slot, whose state is
the newest then: the operator takes accepted counts up to a row's tokens in *this* step only."""

MENDS = {
    "with rows without drafts as speculative ones": ZERO_DRAFTS,
    "with a state slot for each token as well": (*ZERO_DRAFTS, *SLOT_PER_TOKEN),
}

NOT_FOLDED = (
    Edit(
        "ops/gdn_attn_builder.py",
        "            spec_sequence_masks_cpu, num_accepted_tokens = self._fold_spec_sized_prefill_chunks_into_spec(\n"
        "                m, spec_sequence_masks_cpu, num_accepted_tokens\n"
        "            )\n",
        "",
    ),
)
"""Pieces of k + 1 tokens stay on the prompts' path, as in 0.18.0: from the first slot and into it."""

SHARED_ROWS = (
    Edit(
        RUNNER,
        "        if not self.use_async_scheduling:\n"
        "            return super()._update_states_after_model_execute(\n"
        "                output_token_ids, scheduler_output\n"
        "            )\n\n"
        "        if not self.speculative_config or not self.model_config.is_hybrid:\n"
        "            return\n\n"
        "        num_reqs = output_token_ids.size(0)\n",
        "        if True:\n"
        "            return super()._update_states_after_model_execute(\n"
        "                output_token_ids, scheduler_output\n"
        "            )\n\n"
        "        num_reqs = output_token_ids.size(0)\n",
    ),
    Edit(
        RUNNER,
        "        accepted[:num_reqs] = accepted[np.where(new_mask, 0, prev_idx)]\n",
        "        rows = self.input_batch.num_accepted_tokens_cpu\n"
        "        accepted[:num_reqs] = rows[np.where(new_mask, 0, prev_idx)]\n",
    ),
    Edit(
        RUNNER,
        "                self.num_accepted_tokens.np[:num_reqs].fill(1)\n"
        "                self.input_batch.num_accepted_tokens_cpu[:num_reqs].fill(1)\n",
        "                self.num_accepted_tokens.np[:num_reqs] = (\n"
        "                    self.input_batch.num_accepted_tokens_cpu[:num_reqs]\n"
        "                )\n",
    ),
)
"""vllm-ascend#13865 taken out, line for line as 0.23.0rc1 is: accepted counts of the last step are kept in rows of the
batch, which move before the next step reads them by where they were."""

FALLBACK = Edit(
    SAMPLER,
    "    _apply_top_k_top_p_torch_npu\n    if get_ascend_device_type()",
    "    _apply_top_k_top_p_pytorch\n    if get_ascend_device_type()",
)
"""The path of devices that are neither A2 nor A3, instead of CANN's operator."""

SHARE_OF_TOP_K = Edit(
    SAMPLER,
    "            cumprob = torch.cumsum(probs_sort, dim=-1)\n"
    "            top_p_mask = cumprob <= 1 - p.unsqueeze(dim=1)\n",
    "            probs = logits.softmax(dim=-1)\n"
    "            probs_sort, _ = probs.sort(dim=-1, descending=False)\n"
    "            cumprob = torch.cumsum(probs_sort, dim=-1)\n"
    "            top_p_mask = cumprob <= 1 - p.unsqueeze(dim=1)\n",
)

FAULTS: Mapping[str, Fault] = {
    "4930": Fault(
        "vllm-ascend#4930: tokens of a mixed batch are put apart by a sort that is not stable (its fix: stable=True)",
        {
            PLANTED: [
                Edit(
                    "ops/gdn_attn_builder.py",
                    "    return torch.argsort(tensor, stable=True)\n",
                    "    return torch.argsort(tensor)\n",
                )
            ]
        },
        ("--suite", "smoke", "--samples", "3", "--max-num-seqs", "3", "-k", "1", *SMALL),
    ),
    "13863": Fault(
        "vllm-ascend#13863: with async scheduling a row of a hybrid model reads another row's accepted count once rows "
        "have moved (its fix, #13865, taken out: 0.23.0rc1 is so)",
        {PLANTED: SHARED_ROWS},
        (
            *("-k", "3", "--max-tokens", "16", "--output-lengths", "4:16", "--score", "differing", "--churn", "heavy"),
            *("--engine", "async_scheduling=true", "--engine", "enable_prefix_caching=true"),
            *("--engine", "max_model_len=448", "--max-num-seqs", "8", "--max-num-batched-tokens", "224"),
            *("--kv-blocks", "48"),
        ),
        hunted=True,
    ),
    "bonus": Fault(
        "planted in a Triton kernel (bonus_renew): every fifth row takes its neighbour's bonus token",
        {
            PLANTED: [
                Edit(
                    "ops/triton/reject_sample.py",
                    "    bonus_token_id = tl.load(bonus_token_ids_ptr + position)\n",
                    "    source = position\n    if position % 5 == 4:\n        source = position - 1\n"
                    "    bonus_token_id = tl.load(bonus_token_ids_ptr + source)\n",
                )
            ]
        },
        ("-k", "2", "--max-tokens", "16"),
        "mimo",
    ),
    "ngram": Fault(
        "vllm-ascend 0.23.0's own: a hybrid model reads an older state or another row's where rows have unequal drafts",
        MENDS,
        ("--suite", "mixed", "--max-tokens", "32", "--engine", "max_model_len=1024", "--record"),
        variant="ngram",
    ),
    "budget": Fault(
        "vllm-ascend 0.23.0's own, with MTP: a prompt's later piece of just k + 1 tokens is computed as if it were "
        "drafts that had all been accepted, from a state slot that the request never wrote",
        {"with such pieces on the path of prompts": NOT_FOLDED},
        (
            *("--suite", "smoke", "--samples", "3", "-k", "3", "--max-num-seqs", "8"),
            *("--max-num-batched-tokens", "26", "--record", *SMALL),
        ),
    ),
    "topp": Fault(
        "vllm-ascend 0.23.0's own path for devices other than A2 and A3: p is a share of all tokens, not of the k best",
        {
            "with that path in the place of CANN's operator": [FALLBACK],
            "with that path, and p a share of the k best": [FALLBACK, SHARE_OF_TOP_K],
        },
        ("--temperature", "0.9", "--top-k", "20", "--top-p", "0.9", "--max-tokens", "24"),
        "mimo",
        arms=("--backends", f"cpu,{BACKEND}", "--variants", "base"),  # two arms that share it draw alike
    ),
}
