"""How the completions of an arm ended, for tables over whole runs: counted in the database, not loaded."""

from __future__ import annotations

from msgspec import Struct

from parity.records import Key
from parity.records.gaps import KeptGaps
from parity.store import CompletionRow, Store
from parity.store.decode import gaps_row

_OF_ARM = (
    " FROM completions JOIN arms ON arms.id = completions.arm JOIN runs ON runs.number = arms.run"
    " WHERE runs.id = ? AND arms.name = ?"
)
_BY_ITSELF = " AND coalesce(finish_reason, '') NOT IN ('length', 'abort')"


class Tally(Struct, frozen=True, order=True):
    """Completions of a round, of this length and class (`cls`, "" where not compared), that ended this way."""

    round: int
    n_tokens: int
    finish_reason: str | None
    cls: str
    completions: int


def tally(store: Store, run_id: str, arm: str) -> tuple[Tally, ...]:
    """An arm's completions, counted by round, length, finish reason and class."""
    rows = store._read(
        "SELECT round, n_tokens, finish_reason, coalesce(class, '') AS class, count(*) AS n"
        f"{_OF_ARM} GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4",
        (run_id, arm),
    )
    return tuple(Tally(row["round"], row["n_tokens"], row["finish_reason"], row["class"], row["n"]) for row in rows)


def classes(store: Store, run_id: str, arm: str) -> dict[Key, str]:
    """The class of every completion of an arm ("" where not compared), in the order of its capture."""
    rows = store._read(
        f"SELECT request, round, sample, coalesce(class, '') AS class{_OF_ARM} ORDER BY completions.id", (run_id, arm)
    )
    return {Key(row["request"], row["round"], row["sample"]): row["class"] for row in rows}


def gaps(store: Store, run_id: str, arm: str) -> dict[Key, KeptGaps]:
    """The gaps of every scored completion of an arm; none where a parity stored it that kept no gaps."""
    rows = store._read(
        "SELECT request, round, sample, gaps.tokens FROM gaps JOIN completions ON completions.id = gaps.completion"
        " JOIN arms ON arms.id = completions.arm JOIN runs ON runs.number = arms.run"
        " WHERE runs.id = ? AND arms.name = ? ORDER BY completions.id",
        (run_id, arm),
    )
    return {Key(row["request"], row["round"], row["sample"]): gaps_row(row) for row in rows}


def divergences(store: Store, run_id: str, arm: str) -> list[int]:
    """The first divergent token of each completion of an arm that differs from the baseline's."""
    rows = store._read(
        f"SELECT first_divergence{_OF_ARM} AND first_divergence IS NOT NULL ORDER BY completions.id", (run_id, arm)
    )
    return [row["first_divergence"] for row in rows]


def shortest(store: Store, run_id: str, arm: str, *, corrupt: bool, limit: int) -> list[CompletionRow]:
    """The shortest corrupt completions of an arm, or the shortest that ended by themselves."""
    which = " AND class = 'corrupt'" if corrupt else _BY_ITSELF
    rows = store._read(
        f"SELECT request, round, sample{_OF_ARM}{which} ORDER BY n_tokens, completions.id LIMIT ?",
        (run_id, arm, limit),
    )
    found = (store.completion(run_id, arm, Key(row["request"], row["round"], row["sample"])) for row in rows)
    return [one for one in found if one is not None]


def same_as_first_round(store: Store, run_id: str, arm: str, request: str) -> tuple[int, int]:
    """(rounds that gave the same tokens as round 0, rounds after it) of one request's first sample."""
    rows = store._read(
        f"SELECT round, tokens{_OF_ARM} AND request = ? AND sample = 0 ORDER BY round", (run_id, arm, request)
    )
    if not rows or rows[0]["round"] != 0:
        return 0, 0
    return sum(row["tokens"] == rows[0]["tokens"] for row in rows[1:]), len(rows) - 1
