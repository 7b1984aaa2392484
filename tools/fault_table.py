"""Plants every fault at several rates in a real engine and writes the table of docs/fault-lab.md.

    python tools/fault_table.py --out build/fault-lab [--python ENGINE_PYTHON] [--only row_swap] [--write]

Three steps, each kept under --out and skipped where its files are there already: the captures with
speculation (one engine start for all faults), the baseline and the scores (another start), and the
comparison with parity and with three other rules. About ten minutes on two cores the first time.

The peers come from PyPI (`pip install eleanity`, `pip install --no-deps deltacert`: of the latter only the
functions over token lists are used, which need numpy and no engine). Where one cannot be imported its column
says "not installed".
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from parity_backends.vllm.cpu import CpuBackend
from parity_faults import FAULTS

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from fault_judge import Judgement, judge
from fault_lab import run_job, without_logprobs
from peers import check_logprobs_close

from parity.capture import read_capture, read_scores
from parity.comparator import compare
from parity.plan.prompts import load_suite
from parity.plan.requests import tokenise
from parity.records import Capture, Completion, Key

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "fault-lab.md"
TABLE = "<!-- table: tools/fault_table.py -->", "<!-- end of table -->"
CATALOGUE = "<!-- catalogue: tools/fault_table.py -->", "<!-- end of catalogue -->"
RATES = (1.0, 0.1, 0.01)
SEED = 1
DRAFTS = 2
MAX_TOKENS = 48
TOP = 5
ENGINE: dict[str, Any] = {
    "dtype": "bfloat16",
    "enforce_eager": True,
    "enable_prefix_caching": False,
    "enable_chunked_prefill": True,
    # Few rows and small steps: requests start while others run, prompts are computed in pieces beside drafts.
    "max_num_seqs": 4,
    "max_num_batched_tokens": 48,
    "max_model_len": 1024,
    "seed": 0,
    "generation_config": "vllm",
    "disable_log_stats": False,
}
CLEAN, CLEAN_LONG = "clean", "clean-long"
SHORT_RUN = 24
"""Requests of a run; a long run has all of the suite that fit."""
LONG_RUN = {"accepted_counts", "unstable_order", "state_not_reset"}
"""Faults of the recurrent state need not show in any one planting: at the lowest rate they get the long run."""


def job(model: Path, variant: str) -> dict[str, Any]:
    suite = tokenise(load_suite("mixed"), model)
    short = [request for request in suite if len(request.prompt_token_ids) < 50]
    long = [request for request in suite if 90 < len(request.prompt_token_ids) < 310]
    some = short[:: max(1, len(short) // 18)]
    # A long one after every three short ones, so that most steps mix prompts with drafts.
    chosen = [one for i in range(6) for one in (*some[3 * i : 3 * i + 3], long[i])]
    assert len(chosen) == SHORT_RUN
    chosen += [request for request in (*short, *long) if request not in chosen]
    engine = dict(ENGINE)
    if variant == "mtp":
        engine["speculative_config"] = {"method": "mtp", "num_speculative_tokens": DRAFTS}
        engine["per_request_spec_decode_metrics"] = "detailed"
    return {
        "model": str(model),
        "engine": engine,
        "sampling": {"temperature": 0.0, "max_tokens": MAX_TOKENS, "logprobs": TOP},
        "requests": [{"id": r.id, "prompt_token_ids": list(r.prompt_token_ids)} for r in chosen],
        "vocab_size": 2048,
        "eos_token_ids": [0],
    }


def plantings(only: Sequence[str]) -> dict[str, str]:
    """Folder name to the text of PARITY_FAULT."""
    found = {CLEAN: "none", CLEAN_LONG: "none"}
    for name in only or [name for name, fault in FAULTS.items() if fault.layer != "request" and not fault.whole_run]:
        for rate in RATES:
            found[f"{name}-{rate:g}"] = f"{name}:rate={rate:g}:seed={SEED}"
    return found


def split(folder: str) -> tuple[str, str, str]:
    """Fault, rate and the folder of the baseline that belong to a folder; no fault for a clean one."""
    if folder in (CLEAN, CLEAN_LONG):
        return "", "", folder
    fault, _, rate = folder.rpartition("-")
    return fault, rate, CLEAN_LONG if fault in LONG_RUN and float(rate) == min(RATES) else CLEAN


def item(folder: str, text: str) -> dict[str, Any]:
    count = SHORT_RUN if split(folder)[2] == CLEAN else None
    return {"name": folder, "fault": text, "requests": count}


def capture_all(python: Path, model: Path, out: Path, wanted: dict[str, str]) -> None:
    missing = [name for name in wanted if not (out / name / "mtp.jsonl").exists()]
    if missing:
        captures = [item(name, wanted[name]) for name in missing]
        run_job(python, out, "mtp", {**job(model, "mtp"), "captures": captures})
    unscored = [name for name in wanted if not (out / name / "scores.jsonl").exists()]
    if unscored:
        bases = {split(name)[2] for name in unscored}
        base = [item(name, "none") for name in sorted(bases) if not (out / name / "base.jsonl").exists()]
        score = [[name, split(name)[2]] for name in unscored]
        run_job(python, out, "base", {**job(model, "base"), "captures": base, "score": score})


# ---------------------------------------------------------------- the rules


def parity_rule(folder: Path, base: Capture, candidate: Capture) -> dict[str, Any]:
    """parity on captures as a run makes them by default: without decode-time logprobs."""
    if not folder.name.startswith("wrong_logprobs"):
        base, candidate = without_logprobs(base), without_logprobs(candidate)
    result = compare(base, candidate, read_scores(folder / "scores.jsonl")).to_json()
    (folder / "comparison.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    return result


def top_tokens(completion: Completion, position: int) -> set[int]:
    assert completion.logprobs is not None
    return {int(token) for token in completion.logprobs.ids[position] if token >= 0}


Rule = Callable[[Capture, Capture], "set[Key] | str"]
"""Keys that the rule reports, or a word where it only judges the whole."""


def vllm_rule(base: Capture, candidate: Capture) -> set[Key]:
    def is_close(a: Completion, b: Completion) -> bool:
        tops = (partial(top_tokens, one) for one in (a, b))
        return check_logprobs_close(a.token_ids.tolist(), b.token_ids.tolist(), *tops)

    return {key for key, c in candidate.completions.items() if not is_close(base.completions[key], c)}


def deltacert_rule(base: Capture, candidate: Capture) -> set[Key] | str:
    """Completions that degenerate where the baseline's do not, if there are enough to refuse a certificate.

    certify_free_running with its defaults: an excess above 5 % and McNemar p below 0.01.
    """
    try:
        module = importlib.import_module("deltacert.collectors")
    except ImportError:
        return "not installed"
    found = set()
    relieved = 0
    for key, completion in candidate.completions.items():
        old, new = base.completions[key].token_ids.tolist(), completion.token_ids.tolist()
        if not old or not new:
            continue
        degenerate = module.is_degenerate(old), module.is_degenerate(new)
        found |= {key} if degenerate == (False, True) else set()
        relieved += degenerate == (True, False)
    p = module.mcnemar_exact_p(len(found), relieved)
    unsafe = len(found) / len(candidate.completions) > 0.05 and p < 0.01
    return found if unsafe else set()


def eleanity_rule(base: Capture, candidate: Capture) -> set[Key] | str:
    try:
        module = importlib.import_module("eleanity.comparators.diff")
    except ImportError:
        return "not installed"
    return {
        key
        for key, completion in candidate.completions.items()
        if str(
            module.compare_tokens(base.completions[key].token_ids.tolist(), completion.token_ids.tolist()).result.value
        )
        == "DIVERGENT"
    }


PEERS: dict[str, Rule] = {
    "check_logprobs_close": vllm_rule,
    "deltacert": deltacert_rule,
    "eleanity": eleanity_rule,
}

# ---------------------------------------------------------------- the table


def share(part: int, whole: int) -> str:
    return f"{part}/{whole}"


def peer_cell(found: set[Key] | str, planted: set[str]) -> str:
    """Planted rows reported + rows reported that were not planted."""
    if isinstance(found, str):
        return found
    hit = sum(key.request in planted for key in found)
    return f"{hit} + {len(found) - hit}"


def line(name: str, out: Path) -> str:
    folder = out / name
    fault, rate, base_name = split(name)
    base, candidate = read_capture(out / base_name / "base.jsonl"), read_capture(folder / "mtp.jsonl")
    log = folder / "planted.jsonl"
    planted = [json.loads(text) for text in log.read_text("utf-8").splitlines()] if log.exists() else []
    planted = [record for record in planted if record["record"] == "planted"]
    comparison = parity_rule(folder, base, candidate)
    result: Judgement = judge(
        fault or "logits_noise", comparison, planted, candidate, read_scores(folder / "scores.jsonl")
    )
    rows = {truth.request for truth in result.truths}
    cells = [f"`{fault or name}`", rate or "-", str(len(rows)), str(len(result.damaged)), result.verdict]
    kinds = Counter(kind for kind, _ in result.found.values())
    if fault and FAULTS[fault].expected:
        caught = len(result.caught)
        cells += [share(caught, len(result.damaged)), str(len(result.accused))]
        cells += [share(len(result.right_kind), caught), share(len(result.right_token), caught)]
    else:
        cells += ["-", str(len(result.found)), "-", "-"]
    cells.append(", ".join(f"{kind} {count}" for kind, count in kinds.most_common()) or "none")
    cells += [
        peer_cell(rule(base, candidate), rows if fault and FAULTS[fault].expected else set()) for rule in PEERS.values()
    ]
    print(" ".join(cells), file=sys.stderr, flush=True)
    return "| " + " | ".join(cells) + " |"


def table(out: Path, wanted: dict[str, str]) -> str:
    base = out / CLEAN / "base.jsonl"
    heads = [
        "fault",
        "rate",
        "planted",
        "damaged",
        "verdict",
        "caught",
        "accused",
        "kind right",
        "token right",
        "first kinds",
    ]
    heads += list(PEERS)
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [line(name, out) for name in wanted]
    header = read_capture(base)
    versions = []
    for package in ("deltacert", "eleanity"):
        try:
            versions.append(f"{package} {version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    tokens = sum(len(completion.token_ids) for completion in header)
    long = read_capture(out / CLEAN_LONG / "base.jsonl")
    words = (
        f"{len(header.completions)} requests, {tokens} tokens a run "
        f"({len(long.completions)} requests for {', '.join(sorted(LONG_RUN))} at {min(RATES):g}), "
        f"k = {DRAFTS}, max_num_seqs {ENGINE['max_num_seqs']}, "
        f"max_num_batched_tokens {ENGINE['max_num_batched_tokens']}, seed {SEED}; "
        f"vLLM 0.32.0 on CPU, `tiny-qwen3-next-mtp`; {', '.join(versions) or 'no peers installed'}."
    )
    return "\n".join([words, "", *lines])


def catalogue() -> str:
    lines = ["| fault | what it does | emulates | layer | wraps (vLLM 0.32.0) | needs |", f"|{'---|' * 6}"]
    for fault in FAULTS.values():
        needs = ["speculation"] if fault.needs_speculation else []
        needs += [fault.needs] if fault.needs else []
        cells = [f"`{fault.name}`", fault.summary, fault.emulates, fault.layer, f"`{fault.hook}`", "; ".join(needs)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def put(document: str, marks: tuple[str, str], text: str) -> str:
    """The document with what stands between the two marks replaced."""
    head, rest = document.split(marks[0])
    return f"{head}{marks[0]}\n{text}\n{marks[1]}{rest.split(marks[1])[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for captures; what is there is used again")
    parser.add_argument("--python", type=Path, help="interpreter with vLLM (default: the environment of `parity env`)")
    parser.add_argument("--only", action="append", default=[], choices=list(FAULTS), help="this fault only")
    parser.add_argument("--capture-only", action="store_true", help="run the engines, compare nothing")
    parser.add_argument("--write", action="store_true", help=f"replace the table in {DOCUMENT.name}")
    options = parser.parse_args()
    backend = CpuBackend()
    model = backend.default_model()
    assert model is not None
    options.out.mkdir(parents=True, exist_ok=True)
    wanted = plantings(options.only)
    python = options.python or backend.interpreter(lambda text: print(text, file=sys.stderr))
    capture_all(python, model, options.out.resolve(), wanted)
    if options.capture_only:
        return
    text = table(options.out, wanted)
    print(text)
    if options.write:
        old = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(put(put(old, CATALOGUE, catalogue()), TABLE, text), encoding="utf-8")


if __name__ == "__main__":
    main()
