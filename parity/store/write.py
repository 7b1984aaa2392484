"""Writing: each method stores one whole stage of a run or, on any error, nothing of it.

Every method can be called again with the same arguments and leaves the same rows: that is what makes a
run that was killed between two stages resumable.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import orjson

from parity.errors import ParityError
from parity.messages import Message, as_message, message
from parity.plan import Plan
from parity.plan.digest import plan_hash
from parity.records import Capture, Finding, Json, Key
from parity.records.gaps import KeptGaps
from parity.records.next_steps import NextStep
from parity.store.connection import to_text
from parity.store.finding_rows import Decided, finding_rows
from parity.store.fitting import rules_for
from parity.store.packing import pack_gaps, pack_tokens
from parity.store.plans import column_of
from parity.store.read import Reader
from parity.store.rows import RunStatus


@dataclass(frozen=True, slots=True)
class NewRun:
    """What is known when a run starts."""

    id: str
    plan: Plan
    command: str
    source: str = "run"
    directory: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    plan_hash: str | None = None
    """Where it is not the plan's own: of captures compared."""
    score_files: tuple[str, ...] = ()
    """Where the scores came from, where captures were compared."""


@dataclass(frozen=True, slots=True)
class ArmResult:
    """What an arm measured beside its completions. Rates as in `ArmRow`; None where not measured."""

    counters: Mapping[str, Json] | None = None
    tokens_per_second: float | None = None
    acceptance_rate: float | None = None
    acceptance_length: float | None = None


@dataclass(frozen=True, slots=True)
class ArmComparison:
    """A candidate arm compared with the baseline."""

    verdict: str
    reasons: Sequence[Message | str]
    counts: Mapping[str, int]
    stats: Mapping[str, Json]
    classes: Mapping[Key, str]
    first_divergence: Mapping[Key, int]
    findings: Sequence[Finding]
    notes: Sequence[Message | str] = ()
    gaps: Mapping[Key, KeptGaps] = field(default_factory=dict)
    """Of each scored completion of the arm."""
    next_steps: Sequence[NextStep] = ()
    baseline_gaps: Mapping[Key, KeptGaps] = field(default_factory=dict)


def now() -> str:
    """This moment in UTC, ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def fingerprint(plan: str, finding: Finding) -> str:
    """Name of a finding that stays the same in every run of the same plan (20 hex digits)."""
    parts = (
        plan,
        finding.arm,
        finding.request,
        finding.round,
        finding.sample,
        str(finding.kind),
        finding.position,
    )
    return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:20]


class Writer(Reader):
    """The half of the store that records runs."""

    def create_run(self, new: NewRun) -> None:
        """Record a run, its requests and its arms. Calling it again for the same id changes the status, which becomes
        `running`, and how it is judged: a run that is resumed may be scored otherwise, or have an arbiter."""
        plan = new.plan
        with self._write() as conn:
            row = conn.execute("SELECT number FROM runs WHERE id = ?", (new.id,)).fetchone()
            if row is not None:
                conn.execute(
                    "UPDATE runs SET status = 'running', finished = NULL, message = NULL, plan = ? WHERE number = ?",
                    (to_text(column_of(plan, new.score_files)), *row),
                )
                return
            number = conn.execute(
                "INSERT INTO runs (id, source, created, status, model, baseline, plan, plan_hash, command,"
                " versions, directory) VALUES (?, ?, ?, 'running', ?, ?, ?, ?, ?, ?, ?)",
                (
                    new.id,
                    new.source,
                    now(),
                    plan.model.name,
                    plan.baseline,
                    to_text(column_of(plan, new.score_files)),
                    new.plan_hash or plan_hash(plan),
                    new.command,
                    to_text(new.versions),
                    new.directory,
                ),
            ).lastrowid
            conn.executemany(
                "INSERT INTO requests (run, ordinal, name, prompt, prompt_tokens) VALUES (?, ?, ?, ?, ?)",
                (
                    (
                        number,
                        ordinal,
                        request.id,
                        request.prompt,
                        pack_tokens(np.asarray(request.prompt_token_ids, dtype=np.int64)),
                    )
                    for ordinal, request in enumerate(plan.requests)
                ),
            )
            conn.executemany(
                "INSERT INTO arms (run, name, backend, variant, is_baseline, status, engine)"
                " VALUES (?, ?, ?, ?, ?, 'pending', ?)",
                [
                    (
                        number,
                        arm.name,
                        arm.backend,
                        arm.variant,
                        int(arm.name == plan.baseline),
                        to_text(arm.engine),
                    )
                    for arm in plan.arms
                ],
            )

    def save_arm(self, run_id: str, arm: str, capture: Capture, path: str, result: ArmResult) -> None:
        """Store an arm's completions and counters, replacing what an earlier attempt stored."""
        with self._write() as conn:
            arm_id = _arm_id(conn, run_id, arm)
            conn.execute("DELETE FROM findings WHERE arm = ?", (arm_id,))
            conn.execute("DELETE FROM completions WHERE arm = ?", (arm_id,))
            conn.executemany(
                "INSERT INTO completions (arm, request, round, sample, n_tokens, finish_reason, stop_reason,"
                " text, tokens) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    (
                        arm_id,
                        *completion.key,
                        len(completion.token_ids),
                        completion.finish_reason,
                        None if completion.stop_reason is None else to_text(completion.stop_reason),
                        completion.text,
                        pack_tokens(completion.token_ids),
                    )
                    for completion in capture
                ),
            )
            header = capture.header
            conn.execute(
                "UPDATE arms SET status = 'captured', message = NULL, capture = ?, engine = ?,"
                " environment = ?, counters = ?, tokens_per_second = ?, acceptance_rate = ?,"
                " acceptance_length = ?, verdict = NULL, reasons = '[]', counts = '{}', stats = '{}'"
                " WHERE id = ?",
                (
                    path,
                    to_text(header.engine),
                    to_text(header.environment),
                    None if result.counters is None else to_text(result.counters),
                    result.tokens_per_second,
                    result.acceptance_rate,
                    result.acceptance_length,
                    arm_id,
                ),
            )

    def save_comparison(self, run_id: str, arm: str, comparison: ArmComparison) -> None:
        """Store what comparing an arm found, replacing what an earlier attempt stored.

        A finding whose fingerprint was triaged in an earlier run gets that state, one that a rule fits is known.
        """
        with self._write() as conn:
            arm_id = _arm_id(conn, run_id, arm)
            number, plan = conn.execute("SELECT number, plan_hash FROM runs WHERE id = ?", (run_id,)).fetchone()
            ordinals = dict(conn.execute("SELECT name, ordinal FROM requests WHERE run = ?", (number,)))
            decided = Decided(dict(conn.execute("SELECT fingerprint, state FROM triage")), rules_for(conn, arm_id))
            conn.execute("DELETE FROM findings WHERE arm = ?", (arm_id,))
            conn.executemany(
                "UPDATE completions SET class = ?, first_divergence = ?"
                " WHERE arm = ? AND request = ? AND round = ? AND sample = ?",
                ((cls, comparison.first_divergence.get(key), arm_id, *key) for key, cls in comparison.classes.items()),
            )
            baseline_id = conn.execute("SELECT id FROM arms WHERE run = ? AND is_baseline", (number,)).fetchone()[0]
            _save_gaps(conn, arm_id, comparison.gaps)
            _save_gaps(conn, baseline_id, comparison.baseline_gaps)
            conn.executemany(
                "INSERT INTO findings (run, arm, ordinal, request, round, sample, kind, severity, position,"
                " length, gap, state, evidence, fingerprint, weight, followed, rule)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                finding_rows(number, arm_id, ordinals, comparison.findings, partial(fingerprint, plan), decided),
            )
            conn.execute(
                "UPDATE arms SET status = 'compared', verdict = ?, reasons = ?, counts = ?, stats = ? WHERE id = ?",
                (
                    comparison.verdict,
                    to_text(_as_json(comparison.reasons)),
                    to_text({str(kind): count for kind, count in comparison.counts.items()}),
                    to_text(
                        {
                            **comparison.stats,
                            "notes": _as_json(comparison.notes),
                            "next_steps": [one.to_json() for one in comparison.next_steps],
                        }
                    ),
                    arm_id,
                ),
            )

    def fail_arm(self, run_id: str, arm: str, message: Message | str) -> None:
        with self._write() as conn:
            conn.execute(
                "UPDATE arms SET status = 'failed', message = ? WHERE id = ?",
                (to_text(as_message(message).to_json()), _arm_id(conn, run_id, arm)),
            )

    def finish_run(
        self,
        run_id: str,
        status: RunStatus,
        *,
        verdict: str | None = None,
        reasons: Sequence[Message | str] = (),
        message: Message | str | None = None,
        duration: float | None = None,
    ) -> None:
        """Close a run. `duration` in seconds is added to that of earlier attempts."""
        said = None if message is None else to_text(as_message(message).to_json())
        with self._write() as conn:
            changed = conn.execute(
                "UPDATE runs SET status = ?, finished = ?, verdict = ?, reasons = ?, message = ?,"
                " duration = coalesce(duration, 0) + coalesce(?, 0) WHERE id = ?",
                (str(status), now(), verdict, to_text(_as_json(reasons)), said, duration, run_id),
            ).rowcount
            if not changed:
                raise _no_run(run_id)

    def forget_pages(self) -> None:
        """Give the memory of cached pages back: the next stage is about other rows."""
        self._read("PRAGMA shrink_memory")

    def name_run(self, run_id: str, *, name: str | None = None, tags: Sequence[str] | None = None) -> None:
        """Call a run something, and tag it; what is None stays. Tags are words."""
        kept = None if tags is None else " ".join(dict.fromkeys(word for tag in tags for word in tag.split()))
        with self._write() as conn:
            changed = conn.execute(
                "UPDATE runs SET name = coalesce(?, name), tags = coalesce(?, tags) WHERE id = ?", (name, kept, run_id)
            ).rowcount
            if not changed:
                raise _no_run(run_id)

    def delete_run(self, run_id: str) -> None:
        """Remove a run and all its rows. Triage stays: it belongs to the fingerprints. Files stay too."""
        with self._write() as conn:
            if not conn.execute("DELETE FROM runs WHERE id = ?", (run_id,)).rowcount:
                raise _no_run(run_id)


def _arm_id(conn: Any, run_id: str, arm: str) -> int:
    row = conn.execute(
        "SELECT arms.id FROM arms JOIN runs ON runs.number = arms.run WHERE runs.id = ? AND arms.name = ?",
        (run_id, arm),
    ).fetchone()
    if row is None:
        raise ParityError(
            message(
                "store.database_no_arm", 'the database has no arm "{arm}" in a run "{run_id}"', arm=arm, run_id=run_id
            ),
            hint=message("store.run_deleted_meanwhile", "was the run deleted meanwhile?"),
        )
    return int(row[0])


def _as_json(messages: Sequence[Message | str]) -> list[Json]:
    return [as_message(one).to_json() for one in messages]


def _save_gaps(conn: sqlite3.Connection, arm_id: int, gaps: Mapping[Key, KeptGaps]) -> None:
    conn.executemany(
        "INSERT OR REPLACE INTO gaps (completion, tokens) SELECT id, ? FROM completions"
        " WHERE arm = ? AND request = ? AND round = ? AND sample = ?",
        ((pack_gaps(of_one), arm_id, *key) for key, of_one in gaps.items()),
    )


def _no_run(run_id: str) -> ParityError:
    return ParityError(
        message("store.there_no_run_database", 'there is no run "{run_id}" in this database', run_id=run_id),
        hint=message("store.shows_those_there", "`parity runs list` shows those there are"),
    )
