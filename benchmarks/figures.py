"""The table of `make bench`: what is measured by which command, and where in its output each figure stands."""

from __future__ import annotations

from typing import NamedTuple

from peers import DELTACERT, ELEANITY, Peer


class Figure(NamedTuple):
    """A number in what a command prints."""

    label: str
    pattern: str
    """A regular expression; its group is the number."""
    unit: str = ""
    goal: float | None = None
    """At most this; at least this where `more`."""
    more: bool = False
    """More is better."""
    peer: Peer | None = None
    """Whose it is: there is none where that is not installed."""


class Benchmark(NamedTuple):
    name: str
    command: str
    """After `python benchmarks/`."""
    measures: str
    figures: tuple[Figure, ...]
    engine: bool = False
    """It starts real engines: minutes."""


NUMBER = r"([\d.,]+)"

BENCHMARKS = (
    Benchmark(
        "compare",
        "compare_speed.py --processor-time --no-growth",
        "two captures of 20,480 × 512 tokens: the command, and the compare stage by itself",
        (
            Figure("the command, times what orjson takes to read the files", rf"; {NUMBER} times what orjson", "×", 2),
            Figure("its peak", rf"peak {NUMBER} GB", "GB", 0.4),
            Figure(
                "equal pairs, first time", rf"identical, first time *: .*?{NUMBER} M tokens", "M tokens/s", more=True
            ),
            Figure("mixed pairs, every detector", rf"mixed  *: .*?{NUMBER} M tokens", "M tokens/s", 60, more=True),
            Figure("eleanity on them", rf"eleanity compare_tokens: {NUMBER}", "M tokens/s", more=True, peer=ELEANITY),
            Figure(
                "deltacert on a part of them",
                rf"deltacert is_degenerate: {NUMBER}",
                "M tokens/s",
                more=True,
                peer=DELTACERT,
            ),
            Figure(
                "vLLM's check_logprobs_close on a part of them",
                rf"vLLM check_logprobs_close: {NUMBER}",
                "M tokens/s",
                more=True,
            ),
        ),
    ),
    Benchmark(
        "start",
        "start_speed.py --runs 5",
        "what a command costs before it has anything to do",
        (
            Figure("import parity", rf"import parity +HEAD +least {NUMBER}", "s"),
            Figure("parity --help", rf"parity --help +HEAD +least {NUMBER}", "s"),
            Figure("a small compare", rf"16 completions +HEAD +least {NUMBER}", "s"),
        ),
    ),
    Benchmark(
        "store",
        "store_findings.py --findings 1000000",
        "1,000,000 findings in the store",
        (
            Figure("stored in", rf"findings stored in {NUMBER} s", "s"),
            Figure("size", rf"{NUMBER} MB", "MB"),
            Figure("the slowest operation", rf"^ +{NUMBER} ms", "ms"),
            Figure("operations over 0.3 s", rf"operations, {NUMBER} over", goal=0),
        ),
    ),
    Benchmark(
        "memory",
        "memory.py --arms 1 --rounds 40",
        "the memory of `parity run`, 20,480 completions of 64 tokens an arm",
        (
            Figure("generating", rf"^ +1 +\d+ \([\d.]+\) +{NUMBER} \(", "MiB"),
            Figure("comparing", rf"{NUMBER} \([\d.]+\)$", "MiB"),
        ),
    ),
    Benchmark(
        "planted",
        "planted.py --world A",
        "faults planted in real completions: what is found",
        (
            Figure("findings in undamaged captures", r"undamaged.* (\d+) corrupt findings", goal=0),
            Figure("found", rf"^ +all +\d+ +{NUMBER}", "%", more=True),
            Figure("of the right kind", rf"^ +all +\d+ +[\d.]+ +{NUMBER}", "%", more=True),
        ),
    ),
    Benchmark(
        "main-job",
        "main_job.py --runs 2",
        "`make demo`, the second time",
        (
            Figure("from start to end", rf"run 2: {NUMBER} s", "s", 25),
            Figure("scoring, share of the generation it judges", rf"run 2: .*scoring is {NUMBER} of", goal=0.2),
        ),
        engine=True,
    ),
    Benchmark(
        "overhead",
        "overhead.py",
        "through parity against `LLM.generate` as it is",
        tuple(
            Figure(f"{label}{how}", rf"{start}.*{kind} ratio {NUMBER}", "×", goal)
            for label, start in (
                ("base", "cpu/base +logprobs None"),
                ("base, 1 logprob", "cpu/base +logprobs 1"),
                ("base, 5 logprobs", "cpu/base +logprobs 5"),
                ("mtp", "cpu/mtp +logprobs None"),
            )
            for how, kind, goal in (("", "parity", 1.03), (", recorded", "recorded", 1.06))
        ),
        engine=True,
    ),
    Benchmark(
        "long-tests",
        "long_tests.py",
        "tests of real engines that take a minute and more",
        (
            Figure("passed", rf"^{NUMBER} long tests passed", more=True),
            Figure("failed", rf"long tests passed, {NUMBER} failed", goal=0),
        ),
        engine=True,
    ),
)
