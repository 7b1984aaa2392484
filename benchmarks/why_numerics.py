"""Wrong numerics planted under a known condition: does `parity why` name it, and nothing where there is none?

    python benchmarks/why_numerics.py FOLDER [--copies 1] [--table] [--python ENGINE_PYTHON]

Faults of the fault lab that move numbers, each in the row-steps of one condition, run on the real CPU engine with
recorded steps (two starts, kept in FOLDER). Both arms are scored, compared and stored, and `parity why` is asked. The
controls: nothing planted, noise of one bf16 unit, and numerics that are wrong in every row-step, of which no condition
is the cause. They are asked also where their numerics are no finding.

Columns: row-steps planted in; the verdict and the kinds of corrupt findings; row-steps that `parity why` finds far off
their scores, with none far off before; what it puts first for these (others it cannot separate), its corrected p, and
whether that is the condition planted (= alone, ~ named with the first, + with a second one, - another, blank: none is
to be named, or none is). In brackets: what it puts first where it is not given as the cause. Last the same of corrupt
tokens. The exit code is 1 where a condition is given as the cause that is not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from fault_lab import BASELINE, ENGINE, SPECULATION, planted, run_job, short_requests
from parity_backends.vllm.cpu import CpuBackend
from parity_backends.vllm.local import worker_source

from parity.capture import read_capture, read_scores
from parity.capture.steps import read_steps
from parity.errors import ParityError
from parity.explain.association import Association
from parity.explain.hypotheses import Form
from parity.records import Severity
from parity.store import Store
from parity.store.rows import FindingFilter
from parity.view.far_logprobs import far_logprobs
from parity.view.why import Why, explained_by_logprobs, why

SETTINGS = {"max_num_batched_tokens": 48}
"""Of the engine that speculates: prompts come in pieces beside rows that decode."""

STEPS = {
    "moved": "moved",
    "moved_before": "moved before",
    "rejected": "rejected",
    "accepted": "all accepted",
    "mixed": "mixed",
    "boundary": "position % 16 == 0",
    "new": "new",
}
"""Conditions of the fault lab, and the predicates of parity/explain that these are."""


@dataclass(frozen=True)
class Case:
    """`fault`: as PARITY_FAULT, without the condition; of BASELINE requests in order, or reversed. `when`: one
    of STEPS, "" for no condition."""

    fault: str
    when: str = ""

    @property
    def text(self) -> str:
        if self.fault.startswith(BASELINE):
            return BASELINE
        text = f"{self.fault}:rate=1:seed=3"
        return f"{text}:when={self.when}" if self.when else text

    @property
    def part(self) -> str:
        if not self.when:
            return "nothing, or every row-step"
        return next((part for begin, part in PARTS.items() if self.fault.startswith(begin)), "what one module gives")

    @property
    def name(self) -> str:
        name = self.fault.replace(BASELINE, "clean").replace(":", "-")
        return f"{name}+{self.when}" if self.when else name


PARTS = {
    "logit": "logits",
    "lm_head": "logits",
    "rope_row": "positions of attention",
    "kv_": "keys and values",
    "gdn_state": "recurrent states",
    "conv_state": "recurrent states",
}
"""By how the fault's name begins; the others change what one module gives."""

CASES = (
    Case(BASELINE),
    Case(f"{BASELINE}:reversed"),
    Case("logits_noise:ulps=1"),
    Case("logit_bias:millinats=400:share=2"),
    Case("weight_scale:permille=100"),
    Case("kv_fp8"),
    *(Case("logit_bias:millinats=400:share=2", when) for when in STEPS),
    Case("logits_noise:ulps=8", "moved"),
    Case("logits_noise:ulps=8", "rejected"),
    Case("lm_head_off:every=1:permille=50", "accepted"),
    Case("lm_head_off:every=1:permille=200", "accepted"),
    Case("attention_off:every=1:permille=300", "mixed"),
    Case("attention_off:every=1:permille=1000", "mixed"),
    Case("attention_off:every=1:permille=1000", "new"),
    Case("norm_off:every=1:permille=300", "accepted"),
    Case("norm_off:every=1:permille=1000", "accepted"),
    Case("mlp_off:every=1:permille=500", "boundary"),
    Case("mlp_off:every=1:permille=3000", "boundary"),
    Case("router_off:every=1:permille=1000", "moved"),
    Case("gates_off:every=1:permille=3000", "moved"),
    Case("rope_row_off:every=1:permille=300", "moved"),
    Case("rope_row_off:every=1:permille=300", "boundary"),
    Case("kv_entry_off:every=1:permille=300", "rejected"),
    Case("kv_entry_off:every=1:permille=1000", "rejected"),
    Case("kv_head_off:every=1:permille=300", "moved_before"),
    Case("kv_head_off:every=1:permille=1000", "moved"),
    Case("gdn_state_off:every=1:permille=1000", "moved"),
    Case("gdn_state_off:every=1:permille=10000", "rejected"),
    Case("conv_state_off:every=1:permille=300", "mixed"),
    Case("conv_state_off:every=1:permille=1000", "mixed"),
)
"""The last eight change what a request keeps: it stays wrong."""


@dataclass(frozen=True)
class Said:
    """What `parity why` says of one kind of fault. `hit` as in the table."""

    faults: int
    first: Association | None
    telling: bool
    hit: str

    @property
    def shown(self) -> str:
        if self.first is None or not self.faults:
            return "-"
        name = (" or " if self.first.form is Form.EITHER else " + ").join(self.first.names)
        if self.first.same:
            name += f" (and {len(self.first.same)})"
        return f"{self.first.with_fault}: {name}" if self.telling else f"[{name}]"


def hit(condition: str, first: Association | None, telling: bool) -> str:
    if first is None or not telling:
        return ""
    if first.names == (condition,):
        return "~" if first.same else "="
    if (condition,) in first.same:
        return "~"
    return "+" if condition and condition in (*first.names, *(name for one in first.same for name in one)) else "-"


def requests_of(model: Path, copies: int) -> list[dict[str, Any]]:
    """The prompts, and once more with their tokens turned, so that no two are the same."""
    short = short_requests(model)
    made = []
    for turn in range(copies):
        for one in short:
            ids = one["prompt_token_ids"]
            made.append({"id": f"{one['id']}/{turn}", "prompt_token_ids": [*ids[turn:], *ids[:turn]]})
    return made


def run_cases(interpreter: Path, folder: Path, cases: Sequence[Case], copies: int) -> None:
    """Two starts: all captures with speculation, then the baseline and the scores."""
    model = CpuBackend().default_model()
    assert model is not None
    source = folder / "worker.py"
    source.write_bytes(worker_source())
    job: dict[str, Any] = {
        "model": str(model), "sampling": {"temperature": 0.0, "max_tokens": 40, "logprobs": 0},
        "requests": requests_of(model, copies), "vocab_size": 2048, "eos_token_ids": [0],
    }  # fmt: skip
    captures = [
        {
            "name": one.name,
            "fault": one.text,
            "requests": job["requests"][:: -1 if one.fault.endswith("reversed") else 1],
        }
        for one in cases
        if not (folder / one.name / "mtp.jsonl").exists()
    ]
    engine = {**ENGINE, **SPECULATION, **SETTINGS}
    if captures:
        run_job(interpreter, folder, "mtp", {**job, "engine": engine, "captures": captures, "recorder": str(source)})
    baseline = [] if (folder / BASELINE / "base.jsonl").exists() else [{"name": BASELINE, "fault": "none"}]
    score = [[one.name, BASELINE] for one in cases]
    run_job(interpreter, folder, "base", {**job, "engine": ENGINE, "captures": baseline, "score": score})


def explained(folder: Path, case: Case) -> tuple[str, list[Why]]:
    """The verdict with the kinds of what is corrupt, and what `parity why` finds."""
    own, database = folder / case.name, folder / case.name / "parity.db"
    database.unlink(missing_ok=True)
    files = [str(folder / BASELINE / "base.jsonl"), str(own / "mtp.jsonl"), "--scores", str(own / "scores.jsonl")]
    command = [sys.executable, "-m", "parity", "compare", *files, "--save", "--db", str(database)]
    done = subprocess.run(command, capture_output=True, text=True)
    if not database.exists():
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    with Store.open(database, create=False) as store:
        (run,) = store.runs()
        where = FindingFilter(severities=frozenset({str(Severity.CORRUPT)}))
        kinds = sorted({str(row.kind) for row in store.page_findings(run.id, where, limit=10_000)})
        try:
            found = why(store, None)
        except ParityError:  # nothing is wrong
            found = []
    if not case.when and all(one.nats is None for one in found):
        found.append(of_control(folder, own))
    return ", ".join([str(run.verdict), *kinds]), found


def of_control(folder: Path, own: Path) -> Why:
    """As `parity why` would say it if the numerics were a finding."""
    candidate = read_capture(own / "mtp.jsonl")
    far = far_logprobs(candidate, read_capture(folder / BASELINE / "base.jsonl"), read_scores(own / "scores.jsonl"))
    prompts = {one.key: one.prompt_token_ids for one in candidate}
    return explained_by_logprobs("cpu/mtp", read_steps(own / "mtp.steps"), prompts, far)


def said_of(case: Case, whys: Sequence[Why], *, numerics: bool) -> Said:
    one = next((each for each in whys if (each.nats is not None) is numerics), None)
    if one is None:
        return Said(0, None, False, "")
    first = one.associated.ranked[0] if one.associated.ranked else None
    return Said(one.associated.faults, first, one.telling, hit(STEPS.get(case.when, ""), first, one.telling))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--copies", type=int, default=1, help="of the prompts: 48 completions a run each")
    parser.add_argument("--table", action="store_true", help="only the table, from what FOLDER holds")
    parser.add_argument("--python", type=Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    missing = [one for one in CASES if not (args.folder / one.name / "scores.jsonl").exists()]
    if missing and not args.table:
        run_cases(args.python or CpuBackend().interpreter(print), args.folder, missing, args.copies)
    print("| planted | under | row-steps | verdict | far off | first by `parity why` | p | | of corrupt tokens | |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    wrong = []
    marks: dict[str, list[str]] = {}
    for case in CASES:
        if not (args.folder / case.name / "scores.jsonl").exists():
            continue
        verdict, whys = explained(args.folder, case)
        far, tokens = (said_of(case, whys, numerics=numerics) for numerics in (True, False))
        count = len(planted(args.folder / case.name)) if case.when else "-"
        p = "" if far.first is None else f"{far.first.adjusted:.0e}"
        print(
            f"| `{case.fault}` | {STEPS.get(case.when, '-')} | {count} | {verdict} | {far.faults or '-'} | {far.shown} "
            f"| {p} | {far.hit} | {tokens.shown} | {tokens.hit} |"
        )
        wrong += [case.name for one in (far, tokens) if one.hit == "-"]
        marks.setdefault(case.part, []).append(far.hit)
    print("\n| planted in | runs | = | ~ | + | - | not found, or no cause given |")
    print("|---|---|---|---|---|---|---|")
    for part, hits in marks.items():
        print(f"| {part} | {len(hits)} | {' | '.join(str(hits.count(mark)) for mark in ('=', '~', '+', '-', ''))} |")
    print(f"\ngiven as the cause and not: {', '.join(wrong) or 'none'}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
