"""Faults in vllm-ascend's own code, brought back into the release, and found by parity on the emulated NPU.

    .venv/bin/python benchmarks/emulated_faults.py [4930 bonus ngram budget topp] [--at build/emulated-faults]
                                                   [--bisect]

Each is a function of the release with some of its text replaced, in a copy of the installed package, which `parity run
--vllm-ascend` then runs: not an old release, whose vLLM and operators would be others. The same command without it must
PASS. `ngram` and `budget` are faults of 0.23.0 itself, run as released and with mends; `topp` is code of 0.23.0 that an
emulated A2 does not run by itself. `--bisect` asks `parity bisect settings` which setting the fault needs. What is
there already is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "backends"), str(ROOT), str(ROOT / "benchmarks")]

from warm import warm  # noqa: E402

BACKEND = "ascend-emulated"
VARIABLE = "PARITY_VLLM_ASCEND"
"""What `parity run --vllm-ascend` sets."""


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

NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}


def package() -> Path:
    """`vllm_ascend` of the environment."""
    from parity.run import load_backend

    python = load_backend(BACKEND).interpreter(print)
    (found,) = python.parent.parent.glob("lib/python3*/site-packages/vllm_ascend")
    return found


def edited(texts: Mapping[str, str], edits: Sequence[Edit]) -> dict[str, str]:
    """The texts of these files after the edits."""
    made = dict(texts)
    for edit in edits:
        if made[edit.file].count(edit.before) != 1:
            raise ValueError(f"{edit.file}: the text to be replaced is not there once; another release?")
        made[edit.file] = made[edit.file].replace(edit.before, edit.after)
    return made


def checkout(edits: Sequence[Edit], at: Path) -> Path:
    """A copy of the package with the edits in it."""
    if not at.exists():
        made = at.with_name(at.name + ".new")
        shutil.rmtree(made, ignore_errors=True)
        shutil.copytree(
            package(), made / "vllm_ascend", ignore=shutil.ignore_patterns("_cann_ops_custom", "__pycache__")
        )
        files = {edit.file: made / "vllm_ascend" / edit.file for edit in edits}
        texts = {name: file.read_text(encoding="utf-8") for name, file in files.items()}
        for name, text in edited(texts, edits).items():
            files[name].write_text(text, encoding="utf-8")
        made.rename(at)
    return at


def with_ngram(path: Path, asked: Sequence[str]) -> Path:
    """The plan of these options with n-gram drafts in the place of the checkpoint's own."""
    from parity.trust import remember

    subprocess.run([sys.executable, "-m", "parity", "plan", *asked, "-o", str(path)], check=True)
    plan = json.loads(path.read_text(encoding="utf-8"))
    arm = next(arm for arm in plan["arms"] if arm["variant"] == "mtp")
    arm.update(name=f"{BACKEND}/ngram", variant="ngram")
    arm["engine"]["speculative_config"] = NGRAM
    path.write_text(json.dumps(plan), encoding="utf-8")
    remember(path)
    return path


def label(name: str, fault: Fault, which: str) -> str:
    """Of the folders of one of the fault's codes."""
    return f"{name}-clean" if which == RELEASED else f"{name}-patched{list(fault.edits).index(which) or ''}"


def run(name: str, fault: Fault, at: Path, which: str) -> Path:
    """One `parity run`, resumed where it was cut off; its directory."""
    out = at / label(name, fault, which)
    if (out / "result.json").exists():
        return out
    words = [sys.executable, "-m", "parity", "run", "--out", str(out), "--db", str(at / "parity.db"), "--no-rehearse"]
    changed = {}
    if which != RELEASED:
        changed[VARIABLE] = str(checkout(fault.edits[which], at / f"vllm-ascend-{out.name}"))
    if out.exists():
        words.append("--resume")
    else:
        asked = [*fault.arms, *fault.options]
        if fault.model:
            model = at / f"tiny-{fault.model}"
            if not model.exists():
                made = [sys.executable, "-m", "parity", "model", "tiny", "--arch", fault.model, "-o", str(model)]
                subprocess.run(made, check=True)
            asked += ["--model", str(model)]
        words += asked if fault.variant == "mtp" else ["--plan", str(with_ngram(at / f"{name}.json", asked))]
    with warm(BACKEND, at / f"warm-{os.getpid()}", changed) as python:
        words += ["--python", f"{BACKEND}={python}"]
        print("+", *words[2:], file=sys.stderr, flush=True)
        subprocess.run(words, env={**os.environ, **changed})
    return out


def line(out: Path) -> str:
    """Verdict and kinds of a run's only candidate."""
    if not (out / "result.json").exists():
        return "no result"
    result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    (compared,) = result["arms"].values()
    bad = [one for one in compared["findings"] if one["severity"] == "corrupt"]
    requests = len({(one["request"], one["round"], one["sample"]) for one in bad})
    kinds = Counter(one["kind"] for one in bad)
    said = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
    return (
        f"{compared['verdict']}, {requests} of {compared['stats']['completions']} corrupt{': ' if said else ''}{said}"
    )


def bisect(name: str, at: Path) -> None:
    """Which settings the patched code needs to fail."""
    found = json.loads((at / f"{name}-patched" / "result.json").read_text(encoding="utf-8"))
    words = [sys.executable, "-m", "parity", "bisect", "settings", "--run", found["run"]]
    words += ["--db", str(at / "parity.db"), "--out", str(at / f"{name}-bisect")]
    changed = {VARIABLE: str(at / f"vllm-ascend-{name}-patched")}
    with warm(BACKEND, at / f"warm-{os.getpid()}", changed) as python:
        words += ["--python", f"{BACKEND}={python}"]
        print("+", *words[2:], file=sys.stderr, flush=True)
        subprocess.run(words, env={**os.environ, **changed})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", default=list(FAULTS))
    parser.add_argument("--at", type=Path, default=ROOT / "build" / "emulated-faults")
    parser.add_argument("--bisect", action="store_true")
    args = parser.parse_args()
    at: Path = args.at.absolute()
    at.mkdir(parents=True, exist_ok=True)
    for name in args.faults:
        fault = FAULTS[name]
        print(f"{name}: {fault.says}")
        for which in (*fault.edits, RELEASED):
            print(f"  {which}: {line(run(name, fault, at, which))}", flush=True)
        if args.bisect and PLANTED in fault.edits:
            bisect(name, at)


if __name__ == "__main__":
    main()
