"""What to try next for a condition: the setting that removes it, and what makes it frequent.

If the faults stay away without the condition and come more often with more of it, it is more than an association.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct, field

from parity.records import Json


class Experiment(Struct, frozen=True):
    """Options of `parity run` over those of the run at hand; empty where no option does it."""

    remove: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    setting: str = ""
    """The engine argument that `remove` changes, by which bisecting settings may begin."""
    without: tuple[str, ...] = ()
    """Options that `remove` leaves out."""
    engine: Mapping[str, Json] = field(default_factory=dict)
    """Engine arguments that do what `remove` does, where they alone do it."""


_ALONE = Experiment(("--max-num-seqs", "1"), ("--churn", "heavy"), "max_num_seqs", engine={"max_num_seqs": 1})
"""Rows that move, beside others, in batches that grow: none in batches of one."""
_LEAVING = Experiment((), ("--churn", "heavy"))
"""Rows that others had before: a request that ends gives its row to the next in batches of one too."""
_ROOM = Experiment(("--max-num-seqs", "256"), ("--max-num-seqs", "2"), "max_num_seqs", engine={"max_num_seqs": 256})
"""Batches that are full: none where every request has a row."""
_DRAFTS = Experiment((), ("-k", "4"), "speculation")
"""Without drafts is what the baseline is."""
_PREFILL = Experiment(
    ("--max-num-seqs", "1"), ("--churn", "heavy", "--arrival", "poisson:2"), "max_num_seqs", engine={"max_num_seqs": 1}
)
"""Prompts beside rows that decode: none in batches of one, many where requests arrive one by one."""
_CHUNKS = Experiment(
    ("--max-num-batched-tokens", "8192"), ("--max-num-batched-tokens", "64"), "max_num_batched_tokens",
    engine={"max_num_batched_tokens": 8192},
)  # fmt: skip
_PREEMPTED = Experiment(("--churn", "none"), ("--churn", "heavy"), "num_gpu_blocks_override", ("--kv-blocks",))
_GRAPH = Experiment(("--engine", "enforce_eager=true"), (), "enforce_eager", engine={"enforce_eager": True})
_BLOCKS = Experiment((), ("--output-lengths", "16:128"), "block_size")
_LENGTH = Experiment((), ("--max-tokens", "256"), "")

EXPERIMENTS: Final[dict[str, Experiment]] = {
    **dict.fromkeys(
        ("moved", "moved before", "another moved", "shrank", "another count", "row 1", "row 2", "row 3"), _ALONE
    ),
    **dict.fromkeys(("taken over", "left"), _LEAVING),
    **dict.fromkeys(("full", "waiting", "slot reused"), _ROOM),
    **dict.fromkeys(("mixed", "joined", "two prefills", "short piece beside"), _PREFILL),
    **dict.fromkeys(
        ("all accepted", "rejected", "drafts cut", "drafts padded", "1 drafts", "2 drafts", "emitted 2 last",
         "emitted 3 last", "emitted more last"),
        _DRAFTS,
    ),
    **dict.fromkeys(("chunked", "budget"), _CHUNKS),
    "preempted": _PREEMPTED,
    **dict.fromkeys(("padded", "graph"), _GRAPH),
    **dict.fromkeys(
        ("position % 8 == 0", "position % 16 == 0", "position % 32 == 0", "position % 16 == 1", "crosses 16",
         "new block"),
        _BLOCKS,
    ),
    **dict.fromkeys(("position > 32", "position > 64", "near longest", "near its limit"), _LENGTH),
}  # fmt: skip
"""By the name of the predicate. What has none here (the step's number, a prompt's length) no setting changes; each
request has a first step whatever is set."""


def suspected_settings(conditions: Iterable[str]) -> tuple[str, ...]:
    """Engine arguments that would remove these conditions, each once, in their order."""
    found = (EXPERIMENTS[name].setting for name in conditions if name in EXPERIMENTS)
    return tuple(dict.fromkeys(setting for setting in found if setting))
