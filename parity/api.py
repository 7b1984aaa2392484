"""The Python interface: compare captures in a notebook or a script, with typed results and plain rows.

    import parity

    result = parity.compare("base.jsonl", "mtp.jsonl", scores="scores.jsonl")
    result.verdict, result.reasons
    pandas.DataFrame(result.to_rows())

docs/api.md describes it; what it does not name may change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from parity.capture import read_capture, read_scores
from parity.comparator import DEFAULT_TOLERANCE, Comparison
from parity.errors import ParityError
from parity.messages import message
from parity.pipeline.analyse import analyse
from parity.pipeline.inside import look_inside, steps_beside, with_steps
from parity.records import Capture, Finding, Json, Key, ScoreKey, Scores, TopLogprobs, Verdict
from parity.view import Evidence, RunView, of_captures

PathLike: TypeAlias = str | Path
Row: TypeAlias = dict[str, Any]

_COLUMNS = (
    "gap",
    "best_logprob",
    "chosen_logprob",
    "candidate_token",
    "baseline_token",
    "best_token",
    "first_divergent_token",
)
"""Of a finding's evidence."""


class Plot(str):
    """An SVG as text; a notebook shows it as a picture."""

    def _repr_svg_(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Result:
    """What comparing two captures gave. Logprobs and gaps are in nats, positions count output tokens from 0."""

    baseline: Capture
    candidate: Capture
    scores: Scores
    comparison: Comparison

    @property
    def verdict(self) -> Verdict:
        return self.comparison.verdict

    @property
    def reasons(self) -> Sequence[str]:
        return [str(reason) for reason in self.comparison.reasons]

    @property
    def findings(self) -> Sequence[Finding]:
        return self.comparison.findings

    @property
    def corrupt(self) -> Sequence[Finding]:
        """The findings that rounding does not explain."""
        return self.comparison.corrupt

    @property
    def classes(self) -> Mapping[Key, str]:
        """identical, near_tie, corrupt, … for each completion."""
        return self.comparison.classes

    @property
    def counts(self) -> Mapping[str, int]:
        """Findings by kind."""
        return self.comparison.counts

    @property
    def stats(self) -> Mapping[str, Json]:
        return self.comparison.stats.to_json()

    @property
    def notes(self) -> Sequence[str]:
        return [str(note) for note in self.comparison.notes]

    @cached_property
    def view(self) -> RunView:
        """What every surface draws of it."""
        return of_captures([self.baseline, self.candidate], {self.candidate.header.arm: self.comparison})

    @property
    def evidence(self) -> Evidence:
        """The numbers behind the plots: gaps by completion, divergence positions, lengths, acceptance."""
        return self.view.evidence

    def to_rows(self) -> list[Row]:
        """A row for each finding, all with the same keys, ready for pandas or polars."""
        rows = []
        for finding in self.findings:
            evidence = finding.evidence.to_json()
            row: Row = {name: value for name, value in finding.to_json().items() if name != "evidence"}
            row |= {name: evidence.get(name) for name in _COLUMNS}
            row["judged_by"] = str(finding.evidence.judged_by or "")
            row["why"] = str(finding.evidence.why)
            rows.append(row)
        return rows

    def completion_rows(self) -> list[Row]:
        """A row for each completion of the candidate: its class, length, where it parts, its gaps."""
        rows = []
        for one in self.candidate:
            gaps = self.evidence.gap(self.candidate.header.arm, one.key)
            known = gaps.gap[np.isfinite(gaps.gap)] if gaps is not None else np.empty(0)
            rows.append(
                {
                    "arm": self.candidate.header.arm,
                    "request": one.key.request,
                    "round": one.key.round,
                    "sample": one.key.sample,
                    "class": str(self.classes.get(one.key, "")),
                    "tokens": len(one.token_ids),
                    "finish_reason": one.finish_reason,
                    "first_divergence": self.comparison.first_divergence.get(one.key),
                    "largest_gap": float(known.max()) if len(known) else None,
                    "mean_gap": float(known.mean()) if len(known) else None,
                }
            )
        return rows

    def token_rows(self) -> list[Row]:
        """A row for each scored token of either arm: the token and its gap to the reference's best one."""
        rows = []
        for capture in (self.baseline, self.candidate):
            arm = capture.header.arm
            for one in capture:
                gaps = self.evidence.gap(arm, one.key)
                if gaps is None:
                    continue
                for position, token in enumerate(one.token_ids):
                    value = gaps.at(position)
                    where = (one.key.request, one.key.round, one.key.sample)
                    names = ("arm", "request", "round", "sample", "position", "token", "gap")
                    rows.append(dict(zip(names, (arm, *where, position, int(token), value), strict=True)))
        return rows

    def plots(self) -> dict[str, Plot]:
        """Name → SVG: gaps, divergences, lengths, acceptance, as far as there are numbers for them."""
        from parity.report.plots import plots

        drawn = plots(self.evidence, tolerance=self.view.tolerance)
        return {name: Plot(text) for name, text in drawn.items()}

    def write_plots(self, directory: PathLike) -> list[Path]:
        """Write `plots` as NAME.svg. Raises ParityError where the directory cannot be written."""
        from parity.report.plots import write_plots

        return write_plots(self.plots(), Path(directory))

    def to_json(self) -> dict[str, Json]:
        """As `parity compare --json` writes it."""
        return self.comparison.to_json()


def compare(
    baseline: PathLike | Capture,
    candidate: PathLike | Capture,
    *,
    scores: PathLike | Scores | Iterable[PathLike] | None = None,
    tolerance: float | str = DEFAULT_TOLERANCE,
    model: PathLike | None = None,
    partial: bool = False,
) -> Result:
    """Compare two captures, given as files or as `parity.Capture`.

    `scores`: teacher-forced logprobs: a file, several, or what `parity.read_scores` gave; those inside the
    captures are used as well. `tolerance`: nats, or "auto". `model`: a checkpoint directory, to check text.
    `partial`: accept captures that are not finished. Recorded steps beside the files are read too. Raises ParityError.
    """
    directory = None if model is None else Path(model)
    if directory is not None and not (directory / "tokenizer.json").is_file():
        raise ParityError(
            message("api.no_tokenizer_json", "{directory} has no tokenizer.json", directory=str(directory)),
            hint=message("api.give_checkpoints_directory", "give the checkpoint's directory"),
        )
    first, second = _capture(baseline, partial), _capture(candidate, partial)
    known = _scores(scores)
    comparison = analyse(first, second, known, tolerance=tolerance, model=directory)
    inside = [
        look_inside(one, () if isinstance(given, Capture) else steps_beside(Path(given)))
        for one, given in ((first, baseline), (second, candidate))
    ]
    return Result(first, second, known, with_steps(comparison, *inside))


def _capture(given: PathLike | Capture, partial: bool) -> Capture:
    return given if isinstance(given, Capture) else read_capture(Path(given), partial=partial)


def _scores(given: PathLike | Scores | Iterable[PathLike] | None) -> Scores:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return given
    found: dict[ScoreKey, TopLogprobs] = {}
    for path in [given] if isinstance(given, str | Path) else given:
        found.update(read_scores(Path(path)))
    return found
