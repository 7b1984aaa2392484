"""How fast `parity compare` is, end to end and by itself, and how its time grows.

    python benchmarks/compare_speed.py [--completions 20480] [--length 512] [--quick] [--processor-time]
        [--own-logprobs] [--no-growth] [--json FILE]

Two captures are made up: completions of random text over a vocabulary of 32,000, one pair in ten different
(most part at a near-tie and stay different, the rest carry a planted fault), with scores for those. Measured:

- `parity compare BASELINE CANDIDATE --scores SCORES --json` as a process: seconds and peak memory, the median of three,
  in turns with orjson reading the same files;
- the compare stage alone, arrays in memory, all detectors on: tokens per second and side, on the pairs that
  are all identical and on the mixed ones; "first time" means that the streams of the captures are still to be
  gathered into flat columns, which a capture does once;
- on the same pairs in the same run what peers.py names, where it is installed: eleanity's `compare_tokens`, which
  finds the first difference, deltacert's rule for degenerate text; and vLLM's `check_logprobs_close`, for which both
  sides get five logprobs a token;
- the growth of the time with the length (to 32,768 tokens) and with the number of completions.

Numbers are medians of three unless the run takes longer than 20 s. Needs only parity itself.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from peers import DELTACERT, ELEANITY, check_logprobs_close, function_of, missing

from parity.capture import header_record, logprobs_json
from parity.comparator import CompareOptions, compare
from parity.records import Capture, Completion, Header, Key, ScoreKey, TopLogprobs

VOCABULARY = 32_000
TOP = 5
ARMS = ("cpu/base", "cpu/mtp")


def header(arm: str, length: int) -> Header:
    engine = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}} if arm.endswith("mtp") else {}
    return Header(
        arm=arm,
        backend="cpu",
        variant=arm.split("/")[1],
        model="made-up",
        vocab_size=VOCABULARY,
        eos_token_ids=(0,),
        engine=engine,
        sampling={"temperature": 0.0, "max_tokens": length, "n": 1},
    )


def damaged(rng: np.random.Generator, tokens: np.ndarray, nature: int) -> tuple[np.ndarray, int, int]:
    """A candidate stream that differs, the first differing position, and how many tokens are unjustified."""
    length = len(tokens)
    place = int(rng.integers(length // 8, max(length // 8 + 1, length - length // 8)))
    if nature < 7:  # a near-tie: other text from here on
        return np.concatenate([tokens[:place], rng.integers(3, VOCABULARY, length - place)]), place, 0
    chunk = int(min(8, place))
    if nature == 7:
        new = np.concatenate([tokens[:place], tokens[place - chunk : place], tokens[place:]])[:length]
    elif nature == 8:
        lost = np.concatenate([tokens[:place], tokens[place + chunk :]])
        new = np.concatenate([lost, rng.integers(3, VOCABULARY, length - len(lost))])
    else:
        new = np.concatenate([tokens[:place], rng.integers(3, VOCABULARY, chunk), tokens[place + chunk :]])[:length]
    return new, place, chunk


def scores_for(
    rng: np.random.Generator, tokens: np.ndarray, usual: np.ndarray, place: int, unjustified: int
) -> TopLogprobs:
    """The five top tokens and the one chosen at every position, as an engine gives them.

    At `place` the baseline's token `usual[place]` is among them: 0.05 nats below where the difference is a
    near-tie; where it is a fault it is the best one there and `unjustified` tokens from it lie 8 nats off.
    """
    length = len(tokens)
    ids = np.full((length, TOP + 1), -1, dtype=np.int64)
    values = np.full((length, TOP + 1), np.nan)
    ids[:, 1:TOP] = rng.integers(3, VOCABULARY, (length, TOP - 1))
    values[:, 1:TOP] = np.round(-0.1 - np.cumsum(rng.uniform(0.3, 2.0, (length, TOP - 1)), axis=1), 4)
    ids[:, 0], values[:, 0] = tokens, -0.05
    if unjustified:
        wrong = slice(place, min(place + unjustified, length))
        ids[wrong, 0] = usual[wrong]
        ids[wrong, TOP], values[wrong, TOP] = tokens[wrong], -8.05
    else:
        ids[place, 1], values[place, 1] = usual[place], -0.1
    return TopLogprobs(ids, values)


own_logprobs = [False]
"""Whether every completion has the logprobs of its chosen tokens, as recorded arms do."""


def with_own(one: Completion, rng: np.random.Generator) -> Completion:
    if not own_logprobs[0]:
        return one
    values = np.round(-0.05 - np.abs(rng.normal(0, 0.014, (len(one.token_ids), 1))), 6)
    return replace(one, logprobs=TopLogprobs(one.token_ids[:, None].copy(), values))


def captures(
    count: int, length: int, differing: float, seed: int = 0
) -> tuple[Capture, Capture, dict[ScoreKey, TopLogprobs]]:
    """A baseline, a candidate of which the share `differing` is different, and scores for those."""
    rng = np.random.default_rng(seed)
    every = round(1 / differing) if differing else 0
    sides: tuple[dict[Key, Completion], dict[Key, Completion]] = ({}, {})
    scores: dict[ScoreKey, TopLogprobs] = {}
    for index in range(count):
        key = Key(f"p{index}", 0, 0)
        prompt = rng.integers(3, VOCABULARY, 16)
        tokens = rng.integers(3, VOCABULARY, length)
        left = Completion(key, prompt, tokens, None, "length", None)
        sides[0][key] = with_own(left, rng)
        if every and index % every == 0:
            other, place, unjustified = damaged(rng, tokens, (index // every) % 10)
            sides[1][key] = with_own(replace(left, token_ids=other), rng)
            scores[ScoreKey(ARMS[1], *key)] = scores_for(rng, other, tokens, place, unjustified)
        else:
            sides[1][key] = with_own(replace(left, token_ids=tokens.copy()), rng)
    counters = {"num_drafts": 1000, "num_draft_tokens": 2000, "num_accepted_tokens": 1500}
    return (
        Capture(header(ARMS[0], length), sides[0], {}, {}),
        Capture(header(ARMS[1], length), sides[1], {}, counters),
        scores,
    )


def hard_cases(size: int) -> Iterator[tuple[str, Capture, Capture, dict[ScoreKey, TopLogprobs]]]:
    """Pairs that tempt an aligner into quadratic work: loops, two-token text, nothing in common."""
    rng = np.random.default_rng(1)
    loop = np.resize(rng.integers(3, 900, 7), size)
    hurt = loop.copy()
    hurt[::50] = 999
    two = rng.integers(3, 5, size)
    for name, left, right in (
        ("a loop of 7, every 50th token wrong", loop, hurt),
        ("a loop of 7, a token lost", loop, np.delete(loop, size // 2)),
        ("two different tokens only, one lost", two, np.delete(two, size // 2)),
        ("one token repeated against another one", np.full(size, 7), np.full(size, 8)),
        ("nothing in common", rng.integers(3, 900, size), rng.integers(3, 900, size)),
    ):
        sides = []
        for arm, tokens in zip(ARMS, (left, right), strict=True):
            keys = [Key(f"p{index}", 0, 0) for index in range(4)]
            rows = {key: Completion(key, np.array([5, 6]), tokens, None, "length", None) for key in keys}
            sides.append(Capture(header(arm, size), rows, {}, {"num_draft_tokens": 9, "num_accepted_tokens": 8}))
        usual = np.resize(left, len(right))
        wrong = right != usual
        ids = np.stack([np.where(wrong, usual, right), right], axis=1)
        values = np.stack([np.full(len(right), -0.1), np.where(wrong, -8.1, -0.1)], axis=1)
        yield name, sides[0], sides[1], {ScoreKey(ARMS[1], *key): TopLogprobs(ids, values) for key in keys}


def anew(*sides: Capture) -> tuple[Capture, ...]:
    """The same captures as new objects, which have not gathered their streams into flat columns yet."""
    return tuple(replace(side, completions=dict(side.completions)) for side in sides)


def write(folder: Path, baseline: Capture, candidate: Capture, scores: dict[ScoreKey, TopLogprobs]) -> list[str]:
    """The three files in the plain form (the larger one, which others write)."""
    names = []
    for capture, name in ((baseline, "base.jsonl"), (candidate, "mtp.jsonl")):
        with (folder / name).open("w") as file:
            file.write(json.dumps(header_record(capture.header)) + "\n")
            for completion in capture:
                row = {
                    "record": "completion",
                    **completion.key._asdict(),
                    "prompt_token_ids": completion.prompt_token_ids.tolist(),
                    "token_ids": completion.token_ids.tolist(),
                    "text": None,
                    "finish_reason": "length",
                    "stop_reason": None,
                    "logprobs": None if completion.logprobs is None else logprobs_json(completion.logprobs),
                }
                file.write(json.dumps(row) + "\n")
            footer = {
                "record": "footer",
                "completions": len(capture.completions),
                "scores": 0,
                "counters": capture.counters,
            }
            file.write(json.dumps(footer) + "\n")
        names.append(str(folder / name))
    with (folder / "scores.jsonl").open("w") as file:
        file.write(json.dumps(header_record(baseline.header)) + "\n")
        for key, top in scores.items():
            entries = [
                [[int(i), float(v)] for i, v in zip(ids, values, strict=True) if i >= 0]
                for ids, values in zip(top.ids, top.values, strict=True)
            ]
            file.write(json.dumps({"record": "score", **key._asdict(), "logprobs": entries}) + "\n")
        file.write(json.dumps({"record": "footer", "completions": 0, "scores": len(scores), "counters": {}}) + "\n")
    names.append(str(folder / "scores.jsonl"))
    return names


clocks: list[Callable[[], float]] = [time.perf_counter]
"""What seconds are: the last one counts."""


def timed(work: Callable[[], Any], repeats: int = 3) -> float:
    """Median seconds of `repeats` runs; of one where it takes longer than 20 s."""
    seconds: list[float] = []
    for _ in range(repeats):
        start = clocks[-1]()
        work()
        seconds.append(clocks[-1]() - start)
        if seconds[-1] > 20:
            break
    return statistics.median(seconds)


APART = """
import json, os, subprocess, sys
process = subprocess.Popen(sys.argv[2:], stdout=open(sys.argv[1], "wb"))
_, status, usage = os.wait4(process.pid, 0)
seconds = usage.ru_utime + usage.ru_stime
print(json.dumps([os.waitstatus_to_exitcode(status), seconds, usage.ru_maxrss]))
"""
"""Runs a command from a small process: what is forked from a large one begins with that one's memory as its peak."""


def keeping_modules() -> dict[str, str]:
    """The environment; whoever forbids Python to keep compiled modules would measure the compiler."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def end_to_end(files: list[str]) -> dict[str, Any]:
    """Runs the command once as a process of its own. Peak memory in bytes, of that process."""
    command = [sys.executable, "-m", "parity", "compare", files[0], files[1], "--scores", files[2], "--json"]
    with tempfile.NamedTemporaryFile() as out:
        start = time.perf_counter()
        apart = [sys.executable, "-c", APART, out.name, *command]
        told = subprocess.run(apart, env=keeping_modules(), stdout=subprocess.PIPE, check=True)
        seconds = time.perf_counter() - start
        text = out.read()
    code, processor, peak = json.loads(told.stdout)
    return {
        "seconds": seconds,
        "peak_bytes": peak * (1 if sys.platform == "darwin" else 1024),
        "exit_code": code,
        "verdict": json.loads(text).get("verdict") if text else None,
        "processor_s": processor,
    }


READING = "import sys, orjson\nfor name in sys.argv[1:]:\n    for line in open(name, 'rb'):\n        orjson.loads(line)"


def reading_alone(files: list[str]) -> float:
    """Processor seconds in which orjson reads the files' lines and does nothing with them."""
    process = subprocess.Popen([sys.executable, "-c", READING, *files])
    _, _, usage = os.wait4(process.pid, 0)
    return usage.ru_utime + usage.ru_stime


def peers(baseline: Capture, candidate: Capture, most: int) -> dict[str, float]:
    """Tokens per second and side of what others do, on at most `most` of the pairs."""
    pairs = [(c.token_ids.tolist(), candidate.completions[c.key].token_ids.tolist()) for c in list(baseline)[:most]]
    tokens = sum(len(left) for left, _ in pairs)
    result: dict[str, float] = {}
    for line in missing():
        print(line, file=sys.stderr)
    if compare_tokens := function_of(ELEANITY):
        result["eleanity compare_tokens"] = tokens / timed(lambda: [compare_tokens(a, b) for a, b in pairs])
    few = pairs[: max(1, most // 20)]
    some = sum(len(left) for left, _ in few)
    if is_degenerate := function_of(DELTACERT):
        result["deltacert is_degenerate"] = some / timed(lambda: [(is_degenerate(a), is_degenerate(b)) for a, b in few])
    part = pairs[: max(1, most // 8)]  # a list of five for each token takes memory
    rng = np.random.default_rng(0)
    listed = [[{token, *rng.integers(0, VOCABULARY, TOP - 1).tolist()} for token in left] for left, _ in part]
    tops = [(one.__getitem__,) * 2 for one in listed]
    result["vLLM check_logprobs_close"] = sum(len(left) for left, _ in part) / timed(
        lambda: [check_logprobs_close(*pair, *both) for pair, both in zip(part, tops, strict=True)]
    )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--completions", type=int, default=20_480)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--quick", action="store_true", help="a tenth of the completions, shorter curves")
    parser.add_argument("--json", dest="json_file", help="also write the numbers here")
    parser.add_argument("--no-command", action="store_true", help="leave the end-to-end run out")
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="count the processor's seconds instead of the clock's: for a machine that does other work as well "
        "(nothing here uses more than one core)",
    )
    parser.add_argument("--no-growth", action="store_true", help="leave out how the time grows, and the hard cases")
    parser.add_argument("--own-logprobs", action="store_true", help="captures with the chosen tokens' own logprobs")
    options = parser.parse_args()
    own_logprobs[0] = options.own_logprobs
    if options.processor_time:
        clocks.append(time.process_time)
    count = options.completions // (10 if options.quick else 1)
    length = options.length
    choices = CompareOptions()
    results: dict[str, Any] = {"completions": count, "length": length, "cores": os.cpu_count()}

    same = captures(count, length, 0.0)
    mixed = captures(count, length, 0.1)
    tokens = count * length
    for name, (left, right, scores) in (("identical", same), ("mixed", mixed)):
        work = partial(compare, left, right, scores, choices)
        fresh = timed(lambda left=left, right=right, scores=scores: compare(*anew(left, right), scores, choices))
        for case, seconds in ((f"{name}, first time", fresh), (name, timed(work))):
            results[f"compare stage, {case}"] = {"seconds": seconds, "tokens_per_s": tokens / seconds}
            print(f"compare stage, {case:21s}: {seconds:8.3f} s  {tokens / seconds / 1e6:8.1f} M tokens/s a side")
    for name, rate in peers(mixed[0], mixed[1], min(count, 4096)).items():
        results[name] = {"tokens_per_s": rate}
        print(f"{name}: {rate / 1e6:.3f} M tokens/s a side (mixed pairs)")
    if not options.no_command:
        with tempfile.TemporaryDirectory() as folder:
            files = write(Path(folder), *mixed)
            sizes = [os.path.getsize(name) / 1e6 for name in files]
            runs = [(end_to_end(files), reading_alone(files)) for _ in range(3)]
            run, alone = sorted(runs, key=lambda each: each[0]["processor_s"])[1]
            results["end to end"] = {**run, "reading_alone_s": alone}
            print(f"parity compare, files of {sizes[0]:.0f}, {sizes[1]:.0f} and {sizes[2]:.0f} MB:", end=" ")
            print(
                f"{run['seconds']:.1f} s, of them {run['processor_s']:.1f} s of a processor, "
                f"peak {run['peak_bytes'] / 1e9:.2f} GB, {run['verdict']}; "
                f"{run['processor_s'] / alone:.2f} times what orjson takes to read them ({alone:.2f} s)"
            )
    del same, mixed
    if not options.no_growth:
        growth(results, compare_with=choices, quick=options.quick)
    results["peak_bytes_of_this_process"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if options.json_file:
        Path(options.json_file).write_text(json.dumps(results, indent=1) + "\n")


def growth(results: dict[str, Any], *, compare_with: CompareOptions, quick: bool) -> None:
    """How the time grows with the length and with the number of completions, and the hard cases."""
    print("growth with the length (half of the pairs different, faults of every nature):")
    results["by length"] = {}
    for size in (512, 2048, 8192, 32_768)[: 3 if quick else 4]:
        left, right, scores = captures(max(40, 1_310_720 // size), size, 0.5, seed=size)
        seconds = timed(lambda left=left, right=right, scores=scores: compare(left, right, scores, compare_with))
        rate = len(left.completions) * size / seconds
        results["by length"][size] = rate
        print(f"  {size:6d} tokens x {len(left.completions):5d}: {seconds:8.3f} s  {rate / 1e6:8.2f} M tokens/s")
    print("growth with the number of completions (512 tokens, 10 % different):")
    results["by completions"] = {}
    for size in (1_280, 5_120, 20_480, 40_960)[: 2 if quick else 4]:
        left, right, scores = captures(size, 512, 0.1, seed=size)
        seconds = timed(lambda left=left, right=right, scores=scores: compare(left, right, scores, compare_with))
        results["by completions"][size] = seconds
        print(f"  {size:6d}: {seconds:8.3f} s  {size * 512 / seconds / 1e6:8.2f} M tokens/s")
    size = 8_192 if quick else 32_768
    print(f"hard cases, 4 completions of {size} tokens, scored:")
    results["hard cases"] = {}
    for name, left, right, scores in hard_cases(size):
        seconds = timed(lambda left=left, right=right, scores=scores: compare(left, right, scores, compare_with))
        results["hard cases"][name] = seconds
        print(f"  {name:44s}: {seconds:8.3f} s")


if __name__ == "__main__":
    main()
