"""What the flight recorder itself spends on a step of many rows, without an engine: processor time, by door.

    .venv/bin/python benchmarks/recorder_step.py [--rows 256] [--steps 400] [--longest 2048] [--vocabulary 256]
                                                 [--weights 0]

Runs in the interpreter of the CPU engine (for torch), with a stand-in for the model runner that does nothing: its
tensors, lists and dictionaries have the shapes that vLLM 0.32.0's first model runner has them in, for one group of
attention and one of recurrent layers, two drafts a row, and one request in a hundred that ends in a step. Time is that
of the thread, so that what else runs on the machine counts as little as it can; what asking for it costs is measured
and taken off. `argmax` of the logits is by itself: it grows with the vocabulary, and on an accelerator it is not the
host's. In an engine the doors find the processor's caches full of other things: with 16 MB written between them
(`--weights 16`) they take the time that they take there.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
K = 2
BLOCK = 16


def outside(args: argparse.Namespace) -> None:
    """In parity's own interpreter."""
    sys.path[:0] = [str(ROOT / "backends"), str(ROOT)]
    from parity_backends.vllm.cpu import CpuBackend
    from parity_backends.vllm.local import worker_source

    with tempfile.TemporaryDirectory() as name:
        worker = Path(name) / "worker.py"
        worker.write_bytes(worker_source())
        own = [f"--{key}={value}" for key, value in vars(args).items() if key != "inside"]
        command = [str(CpuBackend().interpreter(print)), str(Path(__file__).resolve()), "--inside", str(worker), *own]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})


class Engine:
    """Rows that decode with two drafts; a request that ends is followed by another one with a prompt of 32 tokens."""

    def __init__(self, rows: int, longest: int, vocabulary: int, weights: int) -> None:
        import numpy as np
        import torch

        self.np, self.torch = np, torch
        self.weights = np.zeros(weights << 17)
        self.random = np.random.default_rng(0)
        self.count, self.longest, self.vocabulary = rows, longest, vocabulary
        self.serial = 0
        self.names = [self._name() for _ in range(rows)]
        self.computed = np.zeros(rows, dtype=np.int64)
        self.fresh = [True] * rows
        self.finished: set[str] = set()
        self.blocks = [0] * rows
        self.tables = [np.zeros((rows, longest // BLOCK), dtype=np.int32) for _ in range(2)]
        self.drafts = np.zeros((rows, K), dtype=np.int64)
        self.logits = torch.rand(rows * (K + 1), vocabulary).to(torch.bfloat16)
        batch = SimpleNamespace(
            req_ids=self.names,
            num_reqs=rows,
            req_id_to_index={name: row for row, name in enumerate(self.names)},
            block_table=SimpleNamespace(
                block_tables=[
                    SimpleNamespace(block_size=BLOCK, block_table=SimpleNamespace(np=table)) for table in self.tables
                ]
            ),
            num_accepted_tokens_cpu=np.ones(rows, dtype=np.int32),
            num_tokens_no_spec=np.zeros(rows, dtype=np.int32),
            token_ids_cpu=np.zeros((rows, longest), dtype=np.int32),
        )
        spec = SimpleNamespace(block_size=BLOCK)
        self.runner = SimpleNamespace(
            attn_groups=[[SimpleNamespace(layer_names=["attention"])], [SimpleNamespace(layer_names=["state"])]],
            kv_cache_config=SimpleNamespace(
                kv_cache_groups=[SimpleNamespace(kv_cache_spec=spec), SimpleNamespace(kv_cache_spec=spec)]
            ),
            input_batch=batch,
            speculative_config=SimpleNamespace(num_speculative_tokens=K),
            model_config=SimpleNamespace(is_hybrid=True),
            device="cpu",
            max_model_len=longest,
            vllm_config=SimpleNamespace(
                scheduler_config=SimpleNamespace(max_num_seqs=rows, max_num_batched_tokens=8192),
                cache_config=SimpleNamespace(mamba_cache_mode="none"),
            ),
            execute_model=lambda scheduled: self.layers(),
            _model_forward=lambda input_ids, positions: self.layers(),
            _sample=lambda logits, metadata: self.sampled,
            sample_tokens=lambda grammar: self.layers() or self.handed,
        )
        self.scheduler = SimpleNamespace(waiting=[], update_from_output=lambda scheduled, output: self.given)

    def _name(self) -> str:
        self.serial += 1
        return f"{self.serial}-0a1b2c3d"

    def layers(self) -> None:
        """Take the processor's caches, as preparing inputs, layers and drafting do."""
        self.np.add(self.weights, 1, out=self.weights)

    def step(self) -> None:
        """What the engine does in a step, from which the recorder's doors are called as the engine calls them."""
        np, torch, count = self.np, self.torch, self.count
        new, running, asked, drafted, new_ids, computed = [], [], {}, {}, [], []
        lengths = np.full(count, K + 1, dtype=np.int64)
        lengths[self.fresh] = 32
        ends = self.computed + lengths
        for row, name in enumerate(self.names):
            due = int(-(-ends[row] // BLOCK))
            ids = list(range(self.blocks[row], due))
            for table in self.tables:
                table[row, self.blocks[row] : due] = [row * 1000 + one for one in ids]
            more = tuple([row * 1000 + one for one in ids] for _ in self.tables)
            self.blocks[row] = max(due, self.blocks[row])
            asked[name] = int(lengths[row])
            if self.fresh[row]:
                params = SimpleNamespace(temperature=0.0, max_tokens=100, stop_token_ids=[], eos_token_id=0)
                new.append(
                    SimpleNamespace(
                        req_id=name, prompt_token_ids=[1] * 32, sampling_params=params, block_ids=more,
                        num_computed_tokens=0,
                    )
                )  # fmt: skip
            else:
                running.append(name)
                computed.append(int(self.computed[row]))
                new_ids.append(more if ids else None)
                drafted[name] = self.drafts[row].tolist()
        cached = SimpleNamespace(
            req_ids=running, num_computed_tokens=computed, new_block_ids=new_ids, resumed_req_ids=set()
        )
        total = int(lengths.sum())
        scheduled = SimpleNamespace(
            scheduled_new_reqs=new, scheduled_cached_reqs=cached, num_scheduled_tokens=asked,
            scheduled_spec_decode_tokens=drafted, total_num_scheduled_tokens=total, finished_req_ids=self.finished,
        )  # fmt: skip
        starts = np.concatenate(([0], np.cumsum(lengths)))
        rows = np.repeat(np.arange(count), lengths)
        positions = torch.from_numpy(self.computed[rows] + np.arange(total) - starts[rows])
        speculative = np.array([not one for one in self.fresh])
        token = np.arange(total)
        slots = (rows * 1000 + positions.numpy() // BLOCK) * BLOCK + positions.numpy() % BLOCK
        metadata = {
            "attention": SimpleNamespace(
                slot_mapping=torch.from_numpy(slots), seq_lens=torch.from_numpy(ends.astype(np.int32))
            ),
            "state": SimpleNamespace(
                num_spec_decodes=int(speculative.sum()), num_decodes=0,
                spec_sequence_masks_cpu=torch.from_numpy(speculative),
                num_accepted_tokens=torch.ones(int(speculative.sum()), dtype=torch.int32),
                spec_state_indices_tensor=torch.zeros((int(speculative.sum()), K + 1), dtype=torch.int32),
                non_spec_state_indices_tensor=torch.zeros(int((~speculative).sum()), dtype=torch.int32),
                has_initial_state=torch.zeros(int((~speculative).sum()), dtype=torch.bool),
                spec_token_indx=torch.from_numpy(token[speculative[rows]].astype(np.int32)),
                non_spec_token_indx=torch.from_numpy(token[~speculative[rows]].astype(np.int32)),
            ),
        }  # fmt: skip
        counts = np.where(speculative, K, 0)
        wide = counts + 1
        firsts = np.repeat(starts[1:] - wide, wide)
        inner = np.arange(int(wide.sum())) - np.repeat(np.cumsum(wide) - wide, wide)
        made = self.random.integers(1, self.vocabulary, (count, K + 1))
        accepted = self.random.integers(1, K + 2, count)
        accepted[~speculative] = 1
        self.sampled = SimpleNamespace(
            sampled_token_ids=torch.from_numpy(np.where(np.arange(K + 1) < accepted[:, None], made, -1))
        )
        lists = [made[row, : accepted[row]].tolist() for row in range(count)]
        batch = self.runner.input_batch
        self.handed = SimpleNamespace(sampled_token_ids=lists, req_id_to_index=dict(batch.req_id_to_index))
        done = {row for row in range(count) if self.random.random() < 0.01 or ends[row] + 40 > self.longest}
        outputs = [
            SimpleNamespace(request_id=name, new_token_ids=lists[row], finish_reason=1 if row in done else None)
            for row, name in enumerate(self.names)
        ]
        self.given = {0: SimpleNamespace(outputs=outputs)}
        self.runner.query_start_loc = SimpleNamespace(np=starts.astype(np.int32))
        context = SimpleNamespace(
            batch_descriptor=None, cudagraph_runtime_mode=SimpleNamespace(value=0), attn_metadata=metadata
        )
        sys.modules["vllm.forward_context"].get_forward_context = lambda: context  # type: ignore[attr-defined]
        self.runner._draft_token_ids = torch.from_numpy(made[:, :K].copy())

        self.runner.execute_model(scheduled)
        self.runner._model_forward(torch.ones(total, dtype=torch.int32), positions)
        drafts = SimpleNamespace(
            num_draft_tokens=counts.tolist(),
            draft_token_ids=torch.from_numpy(np.repeat(made[:, 0], counts).astype(np.int32)),
            logits_indices=torch.from_numpy(firsts + inner),
        )
        self.runner._sample(self.logits[: int(wide.sum())], drafts)
        self.runner.sample_tokens(None)
        self.scheduler.update_from_output(scheduled, self.handed)

        self.drafts = made[:, :K]
        self.computed = np.where(speculative, self.computed + accepted, ends)
        self.fresh = [False] * count
        self.finished = {self.names[row] for row in done}
        for row in done:
            del batch.req_id_to_index[self.names[row]]
            self.names[row] = self._name()
            batch.req_id_to_index[self.names[row]] = row
            self.fresh[row], self.blocks[row], self.computed[row] = True, 0, 0


def cost_of_asking(times: int = 4000) -> float:
    """Seconds between two readings of the thread's time with nothing between them."""
    total = 0.0
    for _ in range(times):
        began = time.thread_time()
        total += time.thread_time() - began
    return total / times


def inside(args: argparse.Namespace) -> None:
    """In the engine's interpreter; nothing of vLLM is imported."""
    sys.modules["vllm"], sys.modules["vllm.forward_context"] = ModuleType("vllm"), ModuleType("vllm.forward_context")
    worker = ModuleType("worker")
    sys.modules["worker"] = worker
    exec(compile(args.inside.read_text(encoding="utf-8"), "worker.py", "exec"), worker.__dict__)
    spent, packing = Counter[str](), [0.0]
    asking = cost_of_asking()
    inner = [0.0]
    packed, best = worker.packed, worker.first_best

    def timed_packing(*values: Any) -> Any:
        began = time.thread_time()
        try:
            return packed(*values)
        finally:
            packing[0] += time.thread_time() - began

    def timed_best(*values: Any) -> Any:
        began = time.thread_time()
        try:
            return best(*values)
        finally:
            spent["argmax"] += time.thread_time() - began - asking  # type: ignore[assignment]
            inner[0] += 2 * asking

    worker.packed, worker.first_best = timed_packing, timed_best
    engine = Engine(args.rows, args.longest, args.vocabulary, args.weights)
    size, written = [0], [0]

    def write(record: dict[str, Any]) -> None:
        size[0] += len(json.dumps(record))
        written[0] += record.get("rows", 0)
        if record["record"] == "steps_stopped":
            raise SystemExit(record["why"])

    recorder = worker.record_runner(engine.runner, engine.scheduler, write, "a", lambda name: None)
    look = recorder.look

    def timed_look(door: Any, *values: Any) -> Any:
        began = time.thread_time()
        try:
            return look(door, *values)
        finally:
            spent[door.__name__] += time.thread_time() - began - asking - inner[0]  # type: ignore[assignment]
            inner[0] = 0.0

    recorder.look = timed_look
    recorder.on = True
    for _ in range(20):
        engine.step()
    recorder.flush()
    packing[0], size[0], written[0] = 0.0, 0, 0
    gc.collect()
    gc.freeze()  # as vLLM does once it has started
    of_steps: list[Counter[str]] = []
    for _ in range(args.steps):
        spent.clear()
        engine.step()
        of_steps.append(Counter(spent))
    recorder.flush()
    argmax = statistics.median(one["argmax"] for one in of_steps)
    totals = sorted(sum(one.values()) - 2 * one["argmax"] for one in of_steps)
    doors = {name: statistics.median(one[name] for one in of_steps) for name in of_steps[-1] if name != "argmax"}
    ms = 1000 / args.steps
    found = {
        "rows": args.rows,
        "steps": args.steps,
        "ms_a_step_in_doors_without_argmax": {
            "median": round(1000 * statistics.median(totals), 4),
            "mean": round(1000 * statistics.mean(totals), 4),
            "tenth": round(1000 * totals[len(totals) // 10], 4),
        },
        "ms_a_step_argmax": round(1000 * argmax, 4),
        "ms_a_step_packing_in_its_thread": round(packing[0] * ms, 4),
        "us_taken_off_for_each_reading": round(asking * 1e6, 2),
        "bytes_a_row_step": round(size[0] / max(1, written[0]), 1),
        "doors": {name: round(1000 * seconds, 4) for name, seconds in doors.items()},
    }
    print(json.dumps(found, indent=1), flush=True)
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--longest", type=int, default=2048, help="the longest length (max_model_len)")
    parser.add_argument("--vocabulary", type=int, default=256)
    parser.add_argument("--weights", type=int, default=0, help="megabytes that the stand-in writes between the doors")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    inside(args) if args.inside else outside(args)


if __name__ == "__main__":
    main()
