"""The view of captures in memory, compared or not: the same as that of the run that the store would make of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import overload

import numpy as np

from parity.comparator import Comparison
from parity.comparator.classes import along, of_class
from parity.pipeline.analyse import arm_result
from parity.records import (
    Capture,
    Completion,
    Finding,
    Index,
    Key,
    RaggedTokens,
    first_asked,
    rounds_and_samples,
    rounds_of,
)
from parity.records.many_findings import Placed, heads, least
from parity.store import CompletionRow, RequestRow
from parity.store.endings import Tally
from parity.store.plans import sampling_of
from parity.view.arm import CUT, ArmView, Figures
from parity.view.evidence import of_comparisons
from parity.view.figures import figures_of
from parity.view.finding import FindingView, worst
from parity.view.run import MOST_FINDINGS, TEXT, WORST, Output, Run, RunView
from parity.view.settings import told_apart


def of_captures(
    captures: Sequence[Capture],
    comparisons: Mapping[str, Comparison] | None = None,
    model: Path | None = None,
    *,
    limit: int | None = MOST_FINDINGS,
) -> RunView:
    """The view of captures, the baseline's first; `comparisons` by candidate arm, none where nothing was compared.

    `model`: the checkpoint, to show text. It has at most `limit` findings, the worst first; None: all.
    """
    compared = comparisons or {}
    baseline, *others = captures
    requests = _Requests(captures)
    configs = told_apart({one.header.arm: one.header.engine for one in captures})
    arms = tuple(
        _arm(one, compared.get(one.header.arm), configs[one.header.arm], one is baseline or not compared)
        for one in captures
    )
    worst_first = sorted(
        (
            _finding(finding, requests, baseline, capture, compared[capture.header.arm])
            for capture in others
            if capture.header.arm in compared
            for finding in _worst(compared[capture.header.arm], requests, limit)
        ),
        key=lambda finding: -finding.weight,
    )
    findings = tuple(worst_first[:limit])
    asked = [rounds_and_samples(capture.keys) for capture in captures]
    classes = {arm: one.classes for arm, one in compared.items()}
    return RunView(
        run=Run(
            id="",
            source="compare",
            created="",
            status=None,
            verdict=str(only.verdict) if (only := _only(compared)) is not None else None,
            reasons=only.reasons if only is not None else (),
            message=None,
            model=baseline.header.model,
            model_path=model,
            baseline=baseline.header.arm,
            command="",
            plan_hash="",
            directory=None,
            duration=None,
            rounds=len(set[int]().union(*(rounds for rounds, _ in asked))),
            samples=len(set[int]().union(*(samples for _, samples in asked))),
            sampling=sampling_of(baseline.header.sampling).to_json(),
            churn={},
        ),
        arms=arms,
        findings=findings,
        total_findings=sum(len(one.findings) for one in compared.values()),
        chosen=worst(findings),
        asked_for_finding=False,
        requests=requests.rows,
        outputs=tuple(output for capture in captures for output in _outputs(capture, classes)),
        read_evidence=lambda: of_comparisons(captures, compared),
        read_classes=lambda arm: classes.get(arm) or dict.fromkeys(_capture(captures, arm).completions, ""),
    )


def _only(compared: Mapping[str, Comparison]) -> Comparison | None:
    return next(iter(compared.values()), None)


def _capture(captures: Sequence[Capture], arm: str) -> Capture:
    return next(one for one in captures if one.header.arm == arm)


class _Requests:
    """What was asked, each once, in the order of the captures."""

    def __init__(self, captures: Sequence[Capture]) -> None:
        first = captures[0].keys
        if isinstance(first, Index) and all(one.keys is first for one in captures):
            self._index: Index[Key] | None = first
            self.rows: Sequence[RequestRow] = Asked(first, captures[0].prompts)
        else:
            self._index = None
            asked = enumerate(first_asked(captures))
            self.rows = tuple(RequestRow(number, name, None, prompt) for number, (name, prompt) in asked)
            self._by_name = {row.name: row for row in self.rows}

    def get(self, name: str) -> RequestRow | None:
        if self._index is None:
            return self._by_name.get(name)
        number = self._index.number(name)
        return None if number is None else self.rows[number]


class Asked(Sequence[RequestRow]):
    """Requests of many completions, made when they are looked at."""

    def __init__(self, index: Index[Key], prompts: RaggedTokens) -> None:
        self._index, self._prompts = index, prompts

    def __len__(self) -> int:
        return len(self._index.firsts)

    @overload
    def __getitem__(self, at: int) -> RequestRow: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[RequestRow]: ...
    def __getitem__(self, at: int | slice) -> RequestRow | Sequence[RequestRow]:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        row = int(self._index.firsts[at])
        return RequestRow(at, self._index[row].request, None, self._prompts.row(row))


def _arm(capture: Capture, comparison: Comparison | None, config: str, is_baseline: bool) -> ArmView:
    header, result = capture.header, arm_result(capture)
    classes = {} if comparison is None else comparison.classes
    counted = Counter(
        (number, size, reason, cls or "")
        for number, size, reason, cls in zip(
            rounds_of(capture.keys),
            map(int, capture.tokens.sizes),
            capture.column("finish_reason"),
            along(capture.keys, classes),
            strict=True,
        )
    )
    corrupt = Counter(str(one.kind) for one in heads(comparison.corrupt)) if comparison is not None else Counter()
    return ArmView(
        name=header.arm,
        backend=header.backend,
        variant=header.variant,
        is_baseline=is_baseline,
        control=None,
        status="captured" if comparison is None else "compared",
        message=None,
        capture=capture.source or None,
        config=config,
        planned=header.engine,
        variables={},
        engine=header.engine,
        environment=header.environment,
        verdict=None if comparison is None else str(comparison.verdict),
        reasons=() if comparison is None else comparison.reasons,
        notes=() if comparison is None else comparison.notes,
        figures=Figures() if comparison is None else figures_of(comparison.stats.to_json()),
        stats={} if comparison is None else {**comparison.stats.to_json(), "notes": list(map(str, comparison.notes))},
        tally=tuple(sorted((Tally(*row, times) for row, times in counted.items()), key=_by_round)),
        corrupt=dict(sorted(corrupt.items(), key=lambda one: (-one[1], one[0]))),
        counters=capture.counters or {},
        tokens_per_second=result.tokens_per_second,
        acceptance_rate=result.acceptance_rate,
        acceptance_length=result.acceptance_length,
        next_steps=() if comparison is None else comparison.next_steps,
    )


def _by_round(one: Tally) -> tuple[int, int, str, str]:
    return one.round, one.n_tokens, one.finish_reason or "", one.cls


def _worst(comparison: Comparison, requests: _Requests, limit: int | None) -> Sequence[Finding]:
    """As they come out of the store: those of equal weight by request, round, sample and position."""

    def order(one: Placed) -> tuple[float, int, Key, int]:
        request = requests.get(one.request)
        ordinal = len(requests.rows) if request is None else request.ordinal
        return -one.weight, ordinal, one.key, -1 if one.position is None else one.position

    return least(comparison.findings, limit, order)


def _finding(
    finding: Finding,
    requests: _Requests,
    baseline: Capture,
    candidate: Capture,
    comparison: Comparison,
) -> FindingView:
    return FindingView(
        id=None,
        fingerprint=None,
        arm=finding.arm,
        key=finding.key,
        kind=str(finding.kind),
        severity=str(finding.severity),
        position=finding.position,
        length=finding.length,
        gap=finding.evidence.gap,
        evidence=finding.evidence,
        state="new",
        note="",
        asked=requests.get(finding.request),
        baseline=_stream(baseline, finding.key, None),
        candidate=_stream(candidate, finding.key, comparison),
    )


def _stream(capture: Capture, key: Key, comparison: Comparison | None) -> CompletionRow | None:
    one: Completion | None = capture.completions.get(key)
    if one is None:
        return None
    return CompletionRow(
        capture.header.arm,
        *key,
        len(one.token_ids),
        one.finish_reason,
        one.stop_reason,
        None if comparison is None else comparison.classes.get(key),
        None if comparison is None else comparison.first_divergence.get(key),
        one.text,
        one.token_ids,
    )


def _outputs(capture: Capture, classes: Mapping[str, Mapping[Key, str]]) -> Iterator[Output]:
    """The shortest corrupt completions; where none is, the shortest that ended by itself."""
    arm = capture.header.arm
    corrupt = {key for key in of_class(classes.get(arm, {}), "corrupt") if key in capture.completions}
    if corrupt:
        asked = (key in corrupt for key in capture.keys)
    else:
        asked = (reason not in CUT for reason in capture.column("finish_reason"))
    rows = np.flatnonzero(np.fromiter(asked, dtype=np.bool_, count=len(capture.completions)))
    shortest = rows[np.argsort(capture.tokens.sizes[rows], kind="stable")[: WORST if corrupt else 1]]
    for one in map(capture.rows.__getitem__, shortest.tolist()):
        text = None if one.text is None else one.text[:TEXT]
        yield Output(arm, *one.key, len(one.token_ids), one.finish_reason, bool(corrupt), text)
