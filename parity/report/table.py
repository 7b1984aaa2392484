"""The table of an experiment, an arm a row: how many, how short, how fast, what was corrupt and how surely.

The columns are those of the report on vllm#45100, where 63 of 20,480 generations ended early. Made from the store
or from captures alone; `table_text.py` shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from parity.comparator.population.power import measured_overdispersion
from parity.comparator.population.statistics import wilson_interval
from parity.records import Capture, Json
from parity.report.settings import told_apart
from parity.store import ArmRow, Store
from parity.store.endings import by_round, count_requests, endings, same_as_first_round, shortest

SHORT: Final = (32, 64, 128, 256)
"""Lengths below which completions are counted. One that was cut by its token limit or taken back is not short."""

CUT: Final = ("length", "abort")
"""Finish reasons of completions that did not end by themselves."""

WORST: Final = 3
"""Outputs shown for each arm."""

TEXT: Final = 400
"""Characters kept of an output."""


@dataclass(frozen=True, slots=True)
class KindRate:
    """Corrupt completions of one kind: how many, and the 95 % interval of their rate."""

    kind: str
    completions: int
    rate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Row:
    """One arm. Rates are per completion, speeds in tokens per second, lengths in output tokens."""

    arm: str
    config: str
    """The settings in which the arms differ, as this one resolved them."""
    baseline: bool
    control: str | None
    verdict: str | None
    completions: int
    expected: int | None
    tokens: int
    shortest: int | None
    """Of those that ended by themselves; where none did, of those that reached their limit."""
    shorter_than: Mapping[str, int]
    stops: Mapping[str, int]
    tokens_per_second: float | None
    tokens_per_second_with_start: float | None
    acceptance_rate: float | None
    acceptance_length: float | None
    identical: int | None
    near_tie: int | None
    corrupt: int | None
    corrupt_interval: tuple[float, float] | None
    overdispersion: float
    """How much more the corrupt ones come together in rounds than chance would have it; 1 is not at all."""
    kinds: Sequence[KindRate] = ()
    not_excluded: float | None = None
    """The fault rate that a clean arm could have missed, at 95 %."""
    batch: Mapping[str, Json] = field(default_factory=dict)
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """What an arm said, shown below the table because it is corrupt, or shorter than all others."""

    arm: str
    request: str
    round: int
    sample: int
    tokens: int
    finish_reason: str | None
    corrupt: bool
    text: str | None


@dataclass(frozen=True, slots=True)
class ExperimentTable:
    run: str | None
    model: str
    question: str
    """Prompts × samples × rounds, and up to how many tokens."""
    rows: Sequence[Row]
    outputs: Sequence[Output]
    skipped: Sequence[Mapping[str, str]] = ()
    """Combinations that could not run: arm and reason."""

    def to_json(self) -> dict[str, Json]:
        return {"schema": "parity.table/1", **asdict(self)}


def from_store(store: Store, run_id: str | None = None) -> ExperimentTable:
    """The table of a stored run. Raises ParityError where there is none."""
    run = store.run(run_id)
    arms = store.arms(run.id)
    configs = told_apart({arm.name: arm.engine for arm in arms})
    requests = count_requests(store, run.id)
    sampling = run.plan.get("sampling") or {}
    rounds, n = int(run.plan.get("rounds") or 1), int(sampling.get("n") or 1)
    rows = [
        _stored_row(store, run.id, arm, configs[arm.name], requests * rounds * n if run.source == "run" else None)
        for arm in arms
    ]
    outputs = [output for arm in arms for output in _stored_outputs(store, run.id, arm)]
    return ExperimentTable(
        run.id,
        run.model,
        _question(requests, n, rounds, sampling.get("max_tokens"), run.plan.get("churn")),
        rows,
        outputs,
        [dict(one) for one in run.plan.get("skipped") or ()],
    )


def _stored_row(store: Store, run_id: str, arm: ArmRow, config: str, expected: int | None) -> Row:
    counted = [(one.n_tokens, one.finish_reason, one.completions) for one in endings(store, run_id, arm.name)]
    needle = (store.run(run_id).plan.get("churn") or {}).get("needle")
    same, others = same_as_first_round(store, run_id, arm.name, needle) if needle else (0, 0)
    told = [f"needle {needle}: in {same} of {others} rounds of random batches as it is alone"] if others else []
    controls = {a["name"]: a.get("control") for a in store.run(run_id).plan.get("arms") or ()}
    rounds = by_round(store, run_id, arm.name)
    return _row(
        arm.name,
        config,
        counted,
        arm.counters or {},
        None if arm.is_baseline else arm.stats,
        verdict=arm.verdict,
        expected=expected,
        control=controls.get(arm.name),
        acceptance=(arm.acceptance_rate, arm.acceptance_length),
        overdispersion=measured_overdispersion([bad for _, bad in rounds], [total for total, _ in rounds]),
        more=[*([arm.message.splitlines()[0]] if arm.message else []), *told],  # a log may follow
    )


def _stored_outputs(store: Store, run_id: str, arm: ArmRow) -> list[Output]:
    corrupt = shortest(store, run_id, arm.name, corrupt=True, limit=WORST)
    found = corrupt or shortest(store, run_id, arm.name, corrupt=False, limit=1)
    return [
        Output(
            arm.name,
            *one.key,
            one.n_tokens,
            one.finish_reason,
            bool(corrupt),
            None if one.text is None else one.text[:TEXT],
        )
        for one in found
    ]


def from_captures(captures: Sequence[Capture]) -> ExperimentTable:
    """The table of captures that were not compared: nothing is known of what is corrupt."""
    configs = told_apart({capture.header.arm: capture.header.engine for capture in captures})
    rows, outputs = [], []
    for capture in captures:
        name = capture.header.arm
        counted = Counter((len(one.token_ids), one.finish_reason) for one in capture)
        counters = capture.counters or {}
        proposed, accepted, drafts = (counters.get(key) for key in ("draft_tokens", "accepted_tokens", "drafts"))
        rows.append(
            _row(
                name,
                configs[name],
                [(length, reason, times) for (length, reason), times in counted.items()],
                counters,
                None,
                acceptance=(
                    accepted / proposed if proposed and accepted is not None else None,
                    1 + accepted / drafts if drafts and accepted is not None else None,
                ),
            )
        )
        alone = sorted((one for one in capture if one.finish_reason not in CUT), key=lambda one: len(one.token_ids))
        outputs += [
            Output(name, *one.key, len(one.token_ids), one.finish_reason, False, one.text and one.text[:TEXT])
            for one in alone[:1]
        ]
    first = captures[0]
    keys = list(first.completions)
    return ExperimentTable(
        None,
        first.header.model,
        _question(
            len({key.request for key in keys}),
            len({key.sample for key in keys}),
            len({key.round for key in keys}),
            first.header.sampling.get("max_tokens"),
            None,
        ),
        rows,
        outputs,
    )


def _row(
    name: str,
    config: str,
    counted: Iterable[tuple[int, str | None, int]],
    counters: Mapping[str, Json],
    stats: Mapping[str, Json] | None,
    *,
    verdict: str | None = None,
    expected: int | None = None,
    control: str | None = None,
    acceptance: tuple[float | None, float | None],
    overdispersion: float = 1.0,
    more: Sequence[str] = (),
) -> Row:
    counted = list(counted)
    alone = [(length, times) for length, reason, times in counted if reason not in CUT]
    stops: Counter[str] = Counter()
    for _, reason, times in counted:
        stops[reason or "none"] += times
    total = sum(stops.values())
    tokens = sum(length * times for length, _, times in counted)
    seconds, start = _number(counters.get("generate_seconds")), _number(counters.get("engine_start_seconds"))
    speed = _number(counters.get("tokens_per_second")) or (tokens / seconds if seconds else None)
    corrupt = None if stats is None or "corrupt" not in stats else int(stats["corrupt"])
    notes = list(more)
    if expected is not None and total < expected:
        notes.append(f"{expected - total} of {expected} completions are missing")
    if counters.get("replay_differences"):
        notes.append(f"{counters['replay_differences']} completions came out differently when their round was resumed")
    notes += [str(note) for note in (stats or {}).get("notes", [])]
    return Row(
        arm=name,
        config=config,
        baseline=stats is None,
        control=control,
        verdict=verdict,
        completions=total,
        expected=expected,
        tokens=tokens,
        shortest=_shortest(counted),
        shorter_than={str(bound): sum(t for length, t in alone if length < bound) for bound in SHORT},
        stops=dict(sorted(stops.items())),
        tokens_per_second=speed,
        tokens_per_second_with_start=tokens / (tokens / speed + start) if speed and tokens and start else None,
        acceptance_rate=acceptance[0],
        acceptance_length=acceptance[1],
        identical=_count(stats, "identical"),
        near_tie=_count(stats, "near_tie"),
        corrupt=corrupt,
        corrupt_interval=None if corrupt is None else _interval(corrupt, total, overdispersion),
        overdispersion=overdispersion,
        kinds=[_kind(kind, one, total, overdispersion) for kind, one in ((stats or {}).get("rates") or {}).items()],
        not_excluded=_number((stats or {}).get("fault_rate_not_excluded")),
        batch=_batch(counters),
        notes=notes,
    )


def _shortest(counted: Sequence[tuple[int, str | None, int]]) -> int | None:
    for left_out in (CUT, CUT[1:], ()):
        lengths = [length for length, reason, _ in counted if reason not in left_out]
        if lengths:
            return min(lengths)
    return None


def _kind(kind: str, rate: Mapping[str, Any], total: int, overdispersion: float) -> KindRate:
    hits = int(rate["completions"])
    low, high = _interval(hits, total, overdispersion)
    return KindRate(kind, hits, hits / total if total else 0.0, low, high)


def _interval(hits: int, total: int, overdispersion: float) -> tuple[float, float]:
    """Wilson's, over as many independent completions as these are worth."""
    worth = max(1, round(total / overdispersion)) if total else 0
    return wilson_interval(min(worth, round(hits / overdispersion)) if hits else 0, worth)


BATCH: Final = (
    "steps",
    "batch_sizes",
    "arrivals_while_decoding",
    "aborted",
    "rows_joined",
    "rows_left",
    "rows_moved",
    "preemptions",
    "prefix_cache_hits",
)


def _batch(counters: Mapping[str, Json]) -> dict[str, Json]:
    return {name: counters[name] for name in BATCH if name in counters}


def _question(requests: int, samples: int, rounds: int, max_tokens: Json, churn: Json) -> str:
    parts = [
        f"{requests} requests",
        f"{samples} samples" if samples > 1 else "",
        f"{rounds} rounds" if rounds > 1 else "1 round",
    ]
    text = " × ".join(part for part in parts if part)
    text += f" = {requests * samples * rounds:,} completions an arm"
    if isinstance(max_tokens, int):
        text += f", up to {max_tokens} tokens each"
    if isinstance(churn, Mapping):
        text += "; churn: " + ", ".join(f"{name} {value}" for name, value in churn.items() if name != "seed")
    return text


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _count(stats: Mapping[str, Json] | None, name: str) -> int | None:
    value = None if stats is None else stats.get(name)
    return int(value) if isinstance(value, int | float) else None
