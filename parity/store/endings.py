"""How the completions of an arm ended, for tables over whole runs: counted in the database, not loaded."""

from __future__ import annotations

from dataclasses import dataclass

from parity.records import Key
from parity.store import CompletionRow, Store

_OF_ARM = (
    " FROM completions JOIN arms ON arms.id = completions.arm JOIN runs ON runs.number = arms.run"
    " WHERE runs.id = ? AND arms.name = ?"
)
_BY_ITSELF = " AND coalesce(finish_reason, '') NOT IN ('length', 'abort')"


@dataclass(frozen=True, slots=True)
class Ending:
    """Completions of this length that ended this way."""

    n_tokens: int
    finish_reason: str | None
    completions: int


def endings(store: Store, run_id: str, arm: str) -> list[Ending]:
    """The lengths and finish reasons of an arm's completions, the shortest first."""
    rows = store._read(
        f"SELECT n_tokens, finish_reason, count(*) AS n{_OF_ARM} GROUP BY 1, 2 ORDER BY 1, 2", (run_id, arm)
    )
    return [Ending(row["n_tokens"], row["finish_reason"], row["n"]) for row in rows]


def by_round(store: Store, run_id: str, arm: str) -> list[tuple[int, int]]:
    """(completions, corrupt ones) of each round, in order."""
    rows = store._read(
        f"SELECT round, count(*) AS n, sum(coalesce(class, '') = 'corrupt') AS bad{_OF_ARM} GROUP BY 1 ORDER BY 1",
        (run_id, arm),
    )
    return [(row["n"], row["bad"]) for row in rows]


def shortest(store: Store, run_id: str, arm: str, *, corrupt: bool, limit: int) -> list[CompletionRow]:
    """The shortest corrupt completions of an arm, or the shortest that ended by themselves."""
    which = " AND class = 'corrupt'" if corrupt else _BY_ITSELF
    rows = store._read(
        f"SELECT request, round, sample{_OF_ARM}{which} ORDER BY n_tokens, completions.id LIMIT ?",
        (run_id, arm, limit),
    )
    found = (store.completion(run_id, arm, Key(row["request"], row["round"], row["sample"])) for row in rows)
    return [one for one in found if one is not None]


def count_requests(store: Store, run_id: str) -> int:
    rows = store._read(
        "SELECT count(*) AS n FROM requests JOIN runs ON runs.number = requests.run WHERE runs.id = ?", (run_id,)
    )
    return int(rows[0]["n"])


def same_as_first_round(store: Store, run_id: str, arm: str, request: str) -> tuple[int, int]:
    """(rounds that gave the same tokens as round 0, rounds after it) of one request's first sample."""
    rows = store._read(
        f"SELECT round, tokens{_OF_ARM} AND request = ? AND sample = 0 ORDER BY round", (run_id, arm, request)
    )
    if not rows or rows[0]["round"] != 0:
        return 0, 0
    return sum(row["tokens"] == rows[0]["tokens"] for row in rows[1:]), len(rows) - 1
