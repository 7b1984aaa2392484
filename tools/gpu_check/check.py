"""Runs every arm of plan.json beside it with the Python that runs this, one after another, and prints a table.

    python check.py [--out captures] [--seconds 500] [--arms a,b] [--bare]

Standard library only, besides the engine. Captures and logs go to --out, gzipped; an arm that is there and complete
is not run again, one that does not fit into --seconds is left for the next call. --bare runs the first arm's requests
through LLM.generate too, in a process of its own, for the ratio of speeds.
"""

import argparse
import collections
import gzip
import json
import os
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SHORT = (32, 64, 128, 256)

BARE = """
import json, sys, time
plan, name = json.load(open(sys.argv[1])), sys.argv[2]
arm = next(arm for arm in plan["arms"] if arm["name"] == name)
import os
os.environ.update(arm.get("env") or {})
from vllm import LLM, SamplingParams
from vllm.inputs import TokensPrompt
engine = {k: v for k, v in arm["engine"].items() if k != "per_request_spec_decode_metrics"}
llm = LLM(model=plan["model"]["path"], **engine)
params = []
for request in plan["requests"]:
    wanted = dict(plan["sampling"])
    if not wanted.get("temperature"):
        wanted.pop("seed", None)
    if request.get("max_tokens"):
        wanted["max_tokens"] = request["max_tokens"]
    params.append(SamplingParams(**wanted))
prompts = [TokensPrompt(prompt_token_ids=request["prompt_token_ids"]) for request in plan["requests"]]
llm.generate(prompts, params, use_tqdm=False)
began = time.perf_counter()
tokens = 0
for _ in range(3):
    for output in llm.generate(prompts, params, use_tqdm=False):
        tokens += sum(len(one.token_ids) for one in output.outputs)
print("BARE", tokens / (time.perf_counter() - began), flush=True)
os._exit(0)
"""


def capture_of(out, arm):
    return os.path.join(out, arm.replace("/", "-") + ".jsonl.gz")


def complete(path):
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            last = collections.deque(lines, maxlen=1)
        return bool(last) and json.loads(last[0]).get("record") == "footer"
    except (OSError, EOFError, ValueError):
        return False


def run(arm, out, seconds):
    """The worker's exit code; None when it ran out of time."""
    path = capture_of(out, arm)
    raw = path[: -len(".gz")] + ".part"
    command = [sys.executable, "-u", os.path.join(HERE, "worker.py"), os.path.join(HERE, "plan.json"), "--arm", arm]
    with open(path.replace(".jsonl.gz", ".log"), "ab") as log, open(raw, "wb") as file:
        try:
            code = subprocess.run(
                [*command, "--model", os.path.join(HERE, "model")], stdout=file, stderr=log, timeout=seconds
            ).returncode
        except subprocess.TimeoutExpired:
            return None
    if code == 0:
        with open(raw, "rb") as source, gzip.open(path, "wb", 6) as target:
            shutil.copyfileobj(source, target)
        os.unlink(raw)
    return code


def row(path):
    """One line of the table of vllm#45100: count, shortest, how many are short, stops, speed, acceptance."""
    lengths, stops, footer = [], 0, {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            if record["record"] == "completion" and not record.get("aborted"):
                ids = record["token_ids"]
                lengths.append(len(ids) if isinstance(ids, list) else record.get("tokens", 0))
                stops += record["finish_reason"] == "stop"
            elif record["record"] == "footer":
                footer = record.get("counters") or {}
    drafted = footer.get("draft_tokens") or 0
    accepted = 100.0 * footer.get("accepted_tokens", 0) / drafted if drafted else None
    seconds = footer.get("generate_seconds") or 0
    cells = [str(len(lengths)), str(min(lengths, default=0))]
    cells += [str(sum(length < bound for length in lengths)) for bound in SHORT]
    cells += [str(stops), "%.0f" % (footer.get("tokens", 0) / seconds) if seconds else "-"]
    return [*cells, "-" if accepted is None else f"{accepted:.1f} %"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=os.path.join(HERE, "captures"))
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--arms", default="")
    parser.add_argument("--bare", action="store_true")
    options = parser.parse_args()
    began = time.time()
    os.makedirs(options.out, exist_ok=True)
    with open(os.path.join(HERE, "plan.json"), encoding="utf-8") as file:
        plan = json.load(file)
    names = [arm["name"] for arm in plan["arms"]]
    wanted = [name for name in names if not options.arms or name in options.arms.split(",")]
    failed = []
    for name in wanted:
        if complete(capture_of(options.out, name)):
            continue
        left = options.seconds - (time.time() - began)
        print(f"{name}: running, {left:.0f} s left", file=sys.stderr, flush=True)
        code = run(name, options.out, max(left, 1.0))
        if code is None:
            print(f"{name}: not finished in time; call again", file=sys.stderr)
            break
        if code:
            failed.append(name)
            print(f"{name}: failed with {code}, see the log", file=sys.stderr)
    head = ["arm", "count", "min"] + [f"< {bound}" for bound in SHORT] + ["stop", "tokens/s", "acceptance"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for name in names:
        if complete(capture_of(options.out, name)):
            print("| " + " | ".join([name, *row(capture_of(options.out, name))]) + " |")
    if options.bare:
        command = [sys.executable, "-c", BARE, os.path.join(HERE, "plan.json"), wanted[0]]
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
        speed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("BARE")]
        said = f"{speed[0]} tokens/s" if speed else "failed:\n" + done.stderr[-2000:]
        print(f"bare LLM.generate, {wanted[0]}: {said}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
