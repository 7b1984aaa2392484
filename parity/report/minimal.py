"""The minimal reproduction: at most thirty lines of vLLM's own interface, to paste into an issue.

It has the form of accepted reports (vllm#30632, vllm-ascend#4932): one engine, the prompts, both texts, exit code 1
where the fault shows. It asks no reference: what the token in question may be stands in it, from the run. The careful
script is `repro.py`.
"""

from __future__ import annotations

import ast
import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Final

from parity.records import Json, Kind
from parity.records.kinds import Family
from parity.report.escape import public, whole
from parity.report.repro import engine_of, variables_of
from parity.store import RequestRow
from parity.text import visible
from parity.view import ArmView, FindingView, RunView

LINES: Final = 30
WIDTH: Final = 116
LONGEST: Final = 6_000
"""Characters of all prompts; above, the batch has to be reduced before anybody pastes it."""

SHOWN: Final = (Family.TOKENS, Family.ENDS, Family.RULES)
"""Families that show in the tokens at one place."""


def minimal_script(view: RunView, finding: FindingView) -> str | None:
    """The script for a finding; None where thirty lines cannot show it.

    That is where tokens are drawn at random, where the text had parted from the baseline's before, at a near-tie, and
    where the batch is too large.
    """
    arm = view.arm(finding.arm)
    if not arm.is_vllm or view.run.churn:
        return None
    body = _missing(view, finding) if Kind(finding.kind) is Kind.MISSING_COMPLETION else _token(view, finding)
    prompts = [_prompt(view, request) for request in view.requests]
    names = [request.name for request in view.requests]
    if body is None or sum(map(len, prompts)) > LONGEST or finding.request not in names:  # a database says anything
        return None
    at = names.index(finding.request)
    script = "\n".join(_lines(view, arm, prompts, at, body)) + "\n"
    ast.parse(script)
    return script if script.count("\n") <= LINES else None


def _lines(view: RunView, arm: ArmView, prompts: list[str], at: int, body: list[str]) -> Iterator[str]:
    variables = _named(public(variables_of(arm)))
    yield "import os, sys"
    if variables:
        yield from _packed("os.environ.update(", [f"{name}={_literal(value)}" for name, value in variables.items()])
    yield "from vllm import LLM, SamplingParams"
    yield ""
    yield 'if __name__ == "__main__":'
    yield from _packed("    prompts = [", prompts, "]")
    settings = {name: value for name, value in _named(engine_of(view, arm)).items() if value is not None}
    model = view.run.model if "/" in view.run.model else f"PATH/TO/{view.run.model}"
    arguments = [_literal(model), *(f"{name}={_literal(public(value))}" for name, value in settings.items())]
    yield from _packed("    llm = LLM(", arguments)
    sampling = {k: v for k, v in view.run.sampling.items() if v not in (None, [], {}) and k in _SENT}
    yield from _packed("    params = SamplingParams(", [f"{name}={_literal(v)}" for name, v in sampling.items()])
    yield f"    outputs = llm.generate(prompts, params)[{at}].outputs"
    yield from (f"    {line}" for line in body)


_SENT: Final = frozenset({
    "temperature", "max_tokens", "n", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids", "ignore_eos",
    "min_tokens", "presence_penalty", "frequency_penalty", "repetition_penalty",
})  # fmt: skip


def _token(view: RunView, finding: FindingView) -> list[str] | None:
    """Both texts, and whether the token in question is one that the reference supports."""
    stream, at, parted = finding.baseline, finding.position, finding.first_divergence
    if Kind(finding.kind).row.family not in SHOWN or not view.run.greedy or stream is None or at is None:
        return None
    if parted is not None and parted < at:
        return None
    expected = stream.token_ids.tolist()
    tolerance = view.tolerance if view.tolerance is not None else 0.25
    listed = finding.reference()
    allowed = {token for token, _, gap in listed if gap is not None and gap <= tolerance} | set(expected[at : at + 1])
    return [
        f"actual = list(outputs[{finding.key.sample}].token_ids)",
        *_packed("expected = [", [str(one) for one in expected], "]", indent=4),
        "decode = llm.get_tokenizer().decode",
        'print("expected:", repr(decode(expected)))',
        'print("actual:  ", repr(decode(actual)))',
        f"# {at} tokens are the same; the next one has to be among these",
        f"allowed = {sorted(allowed)}",
        f"sys.exit(actual[:{at}] == expected[:{at}] and not set(actual[{at}:{at + 1}] or [None]) <= set(allowed))",
    ]


def _missing(view: RunView, finding: FindingView) -> list[str] | None:
    if finding.candidate is not None or view.run.rounds > 1:
        return None
    asked = view.run.samples
    return [
        f'print("asked for {asked} completions of this prompt, got", len(outputs))',
        "print([one.text for one in outputs])",
        f"sys.exit(len(outputs) != {asked})",
    ]


def serve_line(view: RunView, arm: ArmView) -> str | None:
    """The same engine as a server; None where it is none that a command line starts."""
    if not arm.is_vllm:
        return None
    words = ["vllm", "serve", view.run.model if "/" in view.run.model else f"PATH/TO/{view.run.model}"]
    for name, value in _named(engine_of(view, arm)).items():
        words += _flag(name, public(value))
    variables = [f"{name}={shlex.quote(str(value))}" for name, value in _named(public(variables_of(arm))).items()]
    return " ".join([*variables, *map(shlex.quote, words)])


def _named(values: Mapping[str, Json]) -> dict[str, Json]:
    """Those whose names are names: a capture or a database may say anything, and a name stands unquoted in what people
    copy and run."""
    return {name: value for name, value in values.items() if name.isascii() and name.isidentifier()}


def _flag(name: str, value: Json) -> list[str]:
    flag = name.replace("_", "-")
    if value is None:
        return []
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", json.dumps(value) if isinstance(value, Mapping | list | tuple) else str(value)]


def _prompt(view: RunView, request: RequestRow) -> str:
    """As text where that gives the same tokens, else as tokens."""
    ids = request.prompt_token_ids.tolist()
    if request.prompt is not None and view.text.encodes(request.prompt) == ids:
        return _literal(request.prompt)
    return f'{{"prompt_token_ids": {ids}}}'


def _packed(opening: str, items: list[str], closing: str = ")", *, indent: int = 0) -> list[str]:
    """A call or a list on as few lines as it takes."""
    lines, pad = [opening], " " * (len(opening) - len(opening.lstrip()) + 4 + indent)
    for number, item in enumerate(items):
        text = item + (", " if number + 1 < len(items) else closing)
        if lines[-1].strip() and len(lines[-1]) + len(text.rstrip()) > WIDTH - indent and lines[-1] != opening:
            lines[-1] = lines[-1].rstrip()
            lines.append(pad)
        lines[-1] += text
    return lines if items else [opening + closing]


def _literal(value: Json) -> str:
    return ascii(whole(value)) if not isinstance(value, str) else repr(visible(value, keep="\n\t"))
