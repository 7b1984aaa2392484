"""What runs on the emulated NPU: models x speculation x what is asked, as a table; docs/emulated.md has one.

    .venv/bin/python benchmarks/emulated_npu.py [--models mimo,deepseek_v3,qwen3_next] [--units mixed,churn,few]
                                                [--release 0.23.0] [--at build/emulated-npu] [--only-table]

A unit is one `parity run`, whose requests share their engines: `mixed` asks greedy, sampled, penalised and other
requests in one batch, of every kind of speculation, and plants a row swap; `churn` has prefix caching, prompts in
pieces, preemption and aborts; `samples` has n = 4, and is scored on the emulated NPU (prompt_logprobs); `eagle`
has drafts of an EAGLE head, made here with random weights, for the dense model alone; `few` has completions of four
tokens, in which n-grams come again, and is scored on the emulated NPU too; `async` and `async-churn` are `mixed` and
`churn` under asynchronous scheduling, which has no n-grams. What has a result is not run again and what
was interrupted goes on, so the same command may be started as often as one likes. Random checkpoints.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "backends"), str(ROOT), str(ROOT / "benchmarks")]

from cut import beyond_the_cut  # noqa: E402
from eagle_head import write_eagle_head  # noqa: E402
from warm import warm  # noqa: E402

MODELS = ("mimo", "deepseek_v3", "qwen3_next")
EMULATED = "ascend-emulated"
BASELINE = "cpu/base"

SPECULATION: Mapping[str, Mapping[str, Any]] = {
    "ngram": {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3, "prompt_lookup_min": 1},
    **{f"k{k}": {"method": "mtp", "num_speculative_tokens": k} for k in (1, 2, 3)},
}
EAGLE: Mapping[str, Any] = {"method": "eagle", "num_speculative_tokens": 2}

ASKED: Mapping[str, Mapping[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 0.8},
    "top-k, top-p": {"temperature": 0.9, "top_k": 20, "top_p": 0.9},
    "logprobs": {"logprobs": 5},
    "penalties": {"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.3},
}
"""Sampling parameters of requests that share a batch."""


NOT_ASKED: Mapping[str, Sequence[str]] = {"0.18.0": ("logprobs",)}
"""Kinds of requests by release: vllm-ascend 0.18.0 ends at logprobs together with speculation, and parity refuses."""

FEW, FEW_OF = (100, 200, 300, 400), ("greedy", "sampled", "logprobs")
"""Token ids of which alone a completion is made, so that n-gram drafts are found, and accepted, in it."""


@dataclass(frozen=True)
class Unit:
    """One `parity run`. `arms`: of the emulated NPU; `churn`, `engine`, `sampling`: of all of them."""

    arms: Sequence[str]
    asked: Mapping[str, Mapping[str, Any]]
    rounds: int = 1
    engine: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    churn: bool = False
    controls: Sequence[str] = ()
    baseline: str = BASELINE
    each: int = 6
    """Requests of each kind."""
    shared: int = 0
    """Tokens that every prompt begins with, before up to a block of its own; 0: prompts of the suite."""
    max_tokens: int = 24
    families: Sequence[str] = MODELS
    """Models that it is asked of."""
    counts: Sequence[str] = ()
    """Counters of the engine that must not stay 0, or the unit has not asked what it says."""


MIXED = Unit(("base", *SPECULATION), ASKED, controls=("row_swap:rate=0.4",))
CHURN = Unit(
    ("base", "k1", "k2"),
    {"prefix caching, prompts in pieces, preemption, aborts": {}},
    rounds=2,
    engine={"enable_prefix_caching": True, "max_num_batched_tokens": 96, "max_num_seqs": 12, "max_model_len": 512},
    churn=True,
    each=24,
    shared=300,
    max_tokens=48,
    counts=("preemptions", "prefix_cache_hits"),
)
ASYNCHRONOUS: Mapping[str, Any] = {"async_scheduling": True}

UNITS: Mapping[str, Unit] = {
    "mixed": MIXED,
    "churn": CHURN,
    "samples": Unit(
        ("base", "k2"), {"n = 4, scored there by prompt_logprobs": {}},
        sampling={"temperature": 0.8, "n": 4}, baseline=f"{EMULATED}/base",
    ),
    "eagle": Unit(("base", "eagle"), ASKED, families=("mimo",)),
    "few": Unit(
        ("base", "ngram"), {name: {**ASKED[name], "allowed_token_ids": FEW} for name in FEW_OF},
        each=12, baseline=f"{EMULATED}/base", families=("mimo",),
    ),
    "async": replace(MIXED, arms=("base", "k1", "k2", "k3"), engine=ASYNCHRONOUS),
    "async-churn": replace(CHURN, engine={**CHURN.engine, **ASYNCHRONOUS}, families=("mimo", "deepseek_v3")),
}  # fmt: skip

PRECISION: Mapping[str, Mapping[str, Any]] = {"deepseek_v3": {"dtype": "float32"}}
"""Of all arms, which are emulated ones: vLLM's CPU build has no MLA in float32 (0.32.0, AMX). Its random experts are so
undecided that in bfloat16 the baseline's own scores reject its tokens."""

ONE_PIECE = {"enable_chunked_prefill": False, "max_num_batched_tokens": 512}
"""A generator of the CPU cannot be rewound after a part of a prompt."""
SAFE_IDS = (16, 2000)
"""Of a tiny checkpoint's 2,048: no special ones."""
BLOCK = {"block_size": 128}
"""vllm-ascend 0.23.0 sets it by itself, but not where prompts come in one piece without a prefix cache."""


def of_release(unit: Unit, backend: str) -> Unit:
    """The unit without what this release does not do."""
    missing = NOT_ASKED.get(backend.partition("@")[2], ())
    return replace(unit, asked={kind: asked for kind, asked in unit.asked.items() if kind not in missing})


def questions(unit: Unit) -> list[dict[str, Any]]:
    """Prompts of the suite, in turn to each kind of request: (lines of a prompts file)."""
    from parity.plan.prompts import load_suite

    if unit.shared:
        return [line for kind, sampling in unit.asked.items() for line in _long(kind, sampling, unit)]
    texts = [prompt.text for prompt in load_suite("mixed") if prompt.text and len(prompt.text) < 200]
    found = []
    for kind, sampling in unit.asked.items():
        for number in range(unit.each):
            text = texts[len(found) % len(texts)]
            found.append({"id": f"{kind} {number}", "prompt": text, "sampling": dict(sampling)})
    return found


def _long(kind: str, sampling: Mapping[str, Any], unit: Unit) -> Iterator[dict[str, Any]]:
    """Prompts of token ids that begin alike and end near a block's end, so that their completions need one more."""
    draw = random.Random(kind)
    prefix = [draw.randrange(*SAFE_IDS) for _ in range(unit.shared)]
    for number in range(unit.each):
        own = [draw.randrange(*SAFE_IDS) for _ in range(draw.randrange(1, BLOCK["block_size"]))]
        yield {"id": f"{kind} {number}", "prompt_token_ids": prefix + own, "sampling": dict(sampling)}


def plan_of(unit: Unit, model: Path, family: str, backend: str, folder: Path) -> Any:
    """The plan of a unit for a checkpoint: emulated arms, beside the CPU backend's base where it has the precision."""
    from parity.pipeline.planning import PlanRequest, load_backends, make_plan
    from parity.plan import Sampling
    from parity.plan.churn import ChurnRequest
    from parity.plan.variants import Variant

    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps(line) + "\n" for line in questions(unit)), encoding="utf-8")
    drawn = bool(unit.sampling.get("temperature")) or any(asked.get("temperature") for asked in unit.asked.values())
    engine = {"max_num_seqs": 32, "max_model_len": 256, **(ONE_PIECE if drawn else {}), **unit.engine}
    names = (*unit.arms, *(("k2",) if unit.controls else ()))  # the control is a copy of the last
    alone = family in PRECISION
    backends = (backend,) if alone else ("cpu", backend)
    request = PlanRequest(
        backends,
        tuple(dict.fromkeys((*(name for name in names if name != "k2"), *(("k2",) if "k2" in names else ())))),
        baseline=f"{backend}/base" if alone else unit.baseline.replace(EMULATED, backend),
        model=model,
        prompts=prompts,
        sampling=Sampling(max_tokens=unit.max_tokens, logprobs=0, **unit.sampling),
        rounds=unit.rounds,
        engine={"max_num_seqs": 32, "max_model_len": engine["max_model_len"]},
        positive_controls=unit.controls,
        named_variants={
            name: Variant(name, "base", engine={"speculative_config": dict(how)})
            for name, how in {**SPECULATION, "eagle": {**EAGLE, "model": str(model.with_name("eagle"))}}.items()
        },
        churn=ChurnRequest(preset="heavy") if unit.churn else ChurnRequest(),
        record=True,
    )
    plan = make_plan(request, load_backends(backends))

    def asked(arm: Any) -> Any:
        if arm.backend == "cpu":
            return replace(arm, engine={**arm.engine, **(ONE_PIECE if drawn else {})})
        few = {"num_gpu_blocks_override": KV_BLOCKS[family]} if unit.churn else {}
        return replace(arm, engine={**arm.engine, **engine, **BLOCK, **few, **PRECISION.get(family, {})})

    arms = tuple(asked(arm) for arm in plan.arms if arm.backend != "cpu" or arm.variant == "base")
    return replace(plan, arms=arms)


KV_BLOCKS: Mapping[str, int] = {"mimo": 12, "deepseek_v3": 12, "qwen3_next": 24}
"""So few that requests are preempted."""


def run(unit: str, family: str, backend: str, at: Path, more: Sequence[str]) -> Path:
    """Run what is not there yet; the run's directory."""
    from parity.trust import remember

    model, folder = at / "models" / family, at / f"{backend}-{family}-{unit}"
    parity = [sys.executable, "-m", "parity"]
    if not model.exists():
        subprocess.run([*parity, "model", "tiny", "--arch", family, "-o", str(model)], check=True)
    write_eagle_head(model.with_name("eagle"))
    out = folder / "run"
    if (out / "result.json").exists():
        return out
    folder.mkdir(parents=True, exist_ok=True)
    plan = folder / "plan.json"
    if not out.exists():
        text = json.dumps(plan_of(of_release(UNITS[unit], backend), model, family, backend, folder).to_json())
        plan.write_text(text, encoding="utf-8")
        remember(plan)
        command = [*parity, "run", "--plan", str(plan), "--out", str(out), "--no-rehearse"]
    else:
        command = [*parity, "run", "--resume", "--out", str(out)]
    print("+", *command[2:], file=sys.stderr, flush=True)
    subprocess.run([*command, "--db", str(at / "parity.db"), *more])
    return out


def rows(unit: str, family: str, backend: str, out: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """What was asked, and what came of it by speculation."""
    kinds = of_release(UNITS[unit], backend).asked
    if not (out / "result.json").exists():
        yield from ((kind, {}) for kind in kinds)
        return
    result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    plan = json.loads((out / "plan.json").read_text(encoding="utf-8"))
    baseline = plan["baseline"].partition("/")
    arms = [name for name in UNITS[unit].arms if (baseline[0], baseline[2]) != (backend, name)]
    asked = Counter(request["id"].rpartition(" ")[0] for request in plan["requests"])
    for kind, sampling in kinds.items():
        count = asked[kind] * plan["rounds"] * plan["sampling"]["n"]
        drawn = bool({**plan["sampling"], **sampling}["temperature"])
        found = {name: verdict(result, f"{backend}/{name}", kind, count, drawn) for name in arms}
        if baseline[0] == backend:  # another engine beside the one that scores
            found["base"] = verdict(result, "cpu/base", kind, count, drawn)
        yield kind, found
    cut = beyond_the_cut(out) if "top-k, top-p" in kinds and baseline[0] != backend else {}
    if cut:
        cells = {name: cut.get(f"{backend}/{name}", (0, 0)) for name in arms}
        yield "tokens beyond the cut", {name: f"{many} of {tokens}" for name, (many, tokens) in cells.items()}
    for control in UNITS[unit].controls:
        said = [str(reason) for reason in result["reasons"] if control in str(reason)]
        yield f"control {control}", {"k2": " ".join(said).partition(": ")[2].partition(": ")[2] or "?"}
    for counter in UNITS[unit].counts:
        yield counter.replace("_", " "), {name: counted(out, f"{backend}/{name}", counter) for name in arms}
    if unit != "samples":
        watched = {name: invariants(result, f"{backend}/{name}") for name in arms}
        yield "rows watched", watched


def verdict(result: Mapping[str, Any], arm: str, kind: str, count: int, drawn: bool) -> str:
    """Of the requests of a kind in one arm: PASS with the number of completions, or what was found; what is said of
    the draws of the run as a whole counts where they are `drawn`."""
    from parity.records import RUN

    failed = result.get("failed", {}).get(arm)
    if failed:
        return f"failed: {failed[:160]}"
    comparison = result["arms"].get(arm)
    if comparison is None:
        return "-"
    corrupt = [
        one
        for one in comparison["findings"]
        if one["severity"] == "corrupt" and one["request"].rpartition(" ")[0].startswith(kind)
    ]
    if corrupt:
        kinds = ", ".join(sorted({one["kind"] for one in corrupt}))
        return f"DIVERGED {len({one['request'] for one in corrupt})} requests of {count}: {kinds}"
    whole = {
        one["kind"]
        for one in comparison["findings"]
        if one["severity"] == "corrupt" and one["request"] == RUN and (drawn or one["evidence"].get("test") != "draws")
    }
    if whole:
        return f"DIVERGED, the run as a whole: {', '.join(sorted(whole))}"
    said = comparison["verdict"]
    return f"{'PASS' if said == 'DIVERGED' else said} {count}"  # what diverged is in another line


def counted(out: Path, arm: str, counter: str) -> str:
    """What the engine counted, over all rounds: the last record of its capture."""
    capture = out / f"{arm.replace('/', '-')}.jsonl"
    if not capture.exists():
        return "-"
    last = json.loads(capture.read_text(encoding="utf-8").rstrip().rpartition("\n")[2])
    return str(last.get("counters", {}).get(counter, "not counted"))


def invariants(result: Mapping[str, Any], arm: str) -> str:
    """What the comparison says of the engine's bookkeeping."""
    comparison = result["arms"].get(arm, {})
    said = [one for one in (*comparison.get("reasons", ()), *comparison.get("notes", ())) if "row-steps" in one]
    return said[0].partition(" of the engine")[0] if said else "-"


def table(models: Sequence[str], units: Sequence[str], backend: str, at: Path) -> str:
    """Markdown: a line for each model and kind of request."""
    columns = ("base", *SPECULATION, "eagle")
    lines = [
        "| model | asked | " + " | ".join(columns) + " |",
        "|---" * (len(columns) + 2) + "|",
    ]
    for family in models:
        for unit in (unit for unit in units if family in UNITS[unit].families):
            for kind, found in rows(unit, family, backend, at / f"{backend}-{family}-{unit}" / "run"):
                cells = " | ".join(found.get(name, "") for name in columns)
                lines.append(f"| {family} | {kind} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--units", default=",".join(UNITS))
    parser.add_argument("--release", help="of vllm-ascend [default: the newest]")
    parser.add_argument("--at", type=Path, default=ROOT / "build" / "emulated-npu")
    parser.add_argument("--only-table", action="store_true", help="run nothing")
    args = parser.parse_args()
    backend = EMULATED + (f"@{args.release}" if args.release else "")
    models, units = args.models.split(","), args.units.split(",")
    if not args.only_table:
        at: Path = args.at.absolute()
        with warm(backend, at / f"warm-{os.getpid()}") as python:
            for family in models:
                for unit in (unit for unit in units if family in UNITS[unit].families):
                    run(unit, family, backend, at, ["--python", f"{backend}={python}"])
    print(table(models, units, backend, args.at))


if __name__ == "__main__":
    main()
