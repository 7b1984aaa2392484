"""Where the scores of a stored run lie."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from parity.capture.shards import is_there
from parity.store import RunRow


def score_files(run: RunRow) -> Iterator[Path]:
    """The score files of a run, as far as they are still there."""
    files = [Path(path) for path in run.score_files]
    if run.directory:
        files.append(Path(run.directory) / "scores.jsonl")
    return (path for path in files if is_there(path))
