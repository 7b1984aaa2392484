"""From findings to a verdict, with the proof that the run tested what it set out to test."""

from __future__ import annotations

import re
from collections.abc import Mapping

from parity.comparator.inputs import settings
from parity.records import Capture, Finding, Json, Kind, Severity, Verdict

RUN = "*"
"""Stands for the request in a finding that concerns the run as a whole."""

IGNORED_SAMPLING = frozenset({"logprobs", "prompt_logprobs", "seed", "detokenize", "extra"})
"""Sampling parameters that do not change what a greedy completion should say."""


RANDOM_ALONE = frozenset({"top_p", "top_k", "min_p"})
"""Sampling parameters that do nothing at temperature 0."""

DEFAULTS: Mapping[str, Json] = {
    "temperature": 0,
    "n": 1,
    "top_p": 1,
    "top_k": 0,
    "min_p": 0,
    "repetition_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "min_tokens": 0,
    "stop": [],
    "stop_token_ids": [],
    "ignore_eos": False,
}
"""What a sampling parameter is where a capture leaves it out or says null."""


def speculates(capture: Capture) -> bool:
    """Did this arm set out to use speculative decoding?"""
    engine = capture.header.engine
    asked = engine.get("asked") if isinstance(engine.get("asked"), Mapping) else {}
    for source in (engine, asked):
        config = source.get("speculative_config") if isinstance(source, Mapping) else None
        if config:
            return True
    return capture.header.variant.split("-")[0].lower() == "mtp"


def speculation_counts(capture: Capture) -> tuple[int, int] | None:
    """(draft tokens proposed, draft tokens accepted), from the counters or the per-step traces.

    Counters of other writers are recognised by name: proposed ones say `draft`, accepted ones `accept`.
    None when the capture says nothing about it.
    """
    proposed = accepted = -1
    for name, value in (capture.counters or {}).items():
        if isinstance(value, bool) or not isinstance(value, int | float) or "rate" in name or "length" in name:
            continue
        if re.search("accept", name, re.IGNORECASE):
            accepted = max(accepted, int(value))
        elif re.search("draft|propos", name, re.IGNORECASE):
            proposed = max(proposed, int(value))
    if proposed == 0 or accepted >= 0:
        return max(proposed, accepted, 0), max(accepted, 0)
    traces = [completion.spec for completion in capture if completion.spec is not None]
    if not traces:
        return None
    return (
        sum(int(trace.drafted.sum()) for trace in traces),
        sum(int(trace.accepted.sum()) for trace in traces),
    )


def exercised(candidate: Capture) -> tuple[dict[str, Json], str | None, str | None]:
    """(what is known of the path, why the run is inconclusive or None, what could not be proven or None)."""
    proof: dict[str, Json] = {"speculates": speculates(candidate)}
    counts = speculation_counts(candidate)
    if counts is not None:
        proof["draft_tokens"], proof["accepted_tokens"] = counts
    if not proof["speculates"]:
        return proof, None, None
    if counts is None:
        note = f"{candidate.header.arm} has no counters: that drafts were proposed and accepted is not proven"
        return proof, None, note
    if not counts[0] and not counts[1]:
        return proof, f"{candidate.header.arm} proposed no draft tokens: speculation was not exercised", None
    if not counts[1]:
        return proof, f"{candidate.header.arm} accepted no draft tokens: speculation was not exercised", None
    return proof, None, None


def different_questions(baseline: Capture, candidate: Capture) -> list[str]:
    """Ways in which the two arms were not asked the same thing, as their headers say."""
    problems = []
    left, right = baseline.header.sampling, candidate.header.sampling
    for name in _asked_of(left, right):
        if _plain(name, left) != _plain(name, right):
            problems.append(f"sampling differs: {name} is {left.get(name)!r} and {right.get(name)!r}")
    parts, _ = settings.differing_parts(baseline.header, candidate.header)
    if parts:
        problems.append(f"the model fingerprints differ ({', '.join(parts)}): not the same checkpoint or tokenizer")
    known = settings.has_fingerprints(baseline.header, candidate.header)
    names = [capture.header.model.rstrip("/").rpartition("/")[2] for capture in (baseline, candidate)]
    if not known and all(names) and names[0] != names[1]:
        problems.append(f"the models differ: {names[0]} and {names[1]}")
    sizes = baseline.header.vocab_size, candidate.header.vocab_size
    if None not in sizes and sizes[0] != sizes[1]:
        problems.append(f"vocabulary differs: {sizes[0]} and {sizes[1]} tokens")
    eos = baseline.header.eos_token_ids, candidate.header.eos_token_ids
    if None not in eos and set(eos[0] or ()) != set(eos[1] or ()):
        problems.append(f"EOS tokens differ: {list(eos[0] or ())} and {list(eos[1] or ())}")
    return problems


def _asked_of(left: Mapping[str, Json], right: Mapping[str, Json]) -> list[str]:
    """Sampling parameters to hold side by side: those that both name, and where both name some at all, those that one
    leaves to its default. The temperature always: missing, it means greedy."""
    names = set(left) & set(right)
    if left and right:
        names |= (set(left) | set(right)) & set(DEFAULTS)
    ignored = IGNORED_SAMPLING
    if not _plain("temperature", left) and not _plain("temperature", right):
        ignored = ignored | RANDOM_ALONE
    return sorted((names | {"temperature"}) - ignored)


def _plain(name: str, sampling: Mapping[str, Json]) -> Json:
    """A parameter's value, whichever way its absence is written."""
    value = sampling.get(name)
    if value is None:
        value = DEFAULTS.get(name)
    if isinstance(value, str) and name == "stop":
        return [value]
    if name == "top_k" and value == -1:
        return 0
    return list(value) if isinstance(value, list | tuple) else value


def decide(findings: list[Finding], inconclusive: list[str]) -> Verdict:
    """DIVERGED if anything is corrupt; INCONCLUSIVE if something keeps the run from saying PASS.

    Arms that were asked different things (an input_mismatch of the whole run) leave nothing to conclude.
    """
    if any(one.kind is Kind.INPUT_MISMATCH and one.request == RUN for one in findings):
        return Verdict.INCONCLUSIVE
    if any(finding.severity is Severity.CORRUPT for finding in findings):
        return Verdict.DIVERGED
    return Verdict.INCONCLUSIVE if inconclusive else Verdict.PASS
