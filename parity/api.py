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
from parity.pipeline.inside import look_inside, steps_beside, with_drafts, with_steps
from parity.pipeline.saving import save_comparison
from parity.plan.checkpoint import shipped_checkpoint
from parity.records import Capture, Completion, Finding, Json, Key, Scores, Verdict, all_scores
from parity.text import visible
from parity.view import Evidence, RunView, of_captures

TEXT_COLUMNS = 200
"""Of a text in a row."""

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

    def __repr__(self) -> str:
        return f"<parity.Plot, {len(self):,} characters of SVG>"

    def _repr_svg_(self) -> str:
        return str(self)


@dataclass(frozen=True, repr=False)
class Result:
    """What comparing two captures gave. Logprobs and gaps are in nats, positions count output tokens from 0.

    It is neither true nor false: ask for its `verdict`.
    """

    baseline: Capture
    candidate: Capture
    scores: Scores
    comparison: Comparison
    model: Path | None = None
    """The checkpoint, to show text."""
    score_files: tuple[str, ...] = ()

    def __repr__(self) -> str:
        found = ", ".join(f"{kind} {count}" for kind, count in self.counts.items()) or "no findings"
        arms = f"{self.candidate.header.arm} compared with {self.baseline.header.arm}"
        return visible(f"<parity.Result {self.verdict}: {arms}, {len(self.classes)} completions, {found}>")

    def __bool__(self) -> bool:
        raise TypeError("a parity.Result is neither true nor false: ask for result.verdict, such as == 'PASS'")

    def _repr_html_(self) -> str:
        from parity.report.notebook import as_html

        return as_html(self.view)

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
        shown = self.model or shipped_checkpoint(self.baseline.header.model)
        return of_captures([self.baseline, self.candidate], {self.candidate.header.arm: self.comparison}, shown)

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
            for side, capture in (("baseline_text", self.baseline), ("candidate_text", self.candidate)):
                row[side] = self._text(capture.completions.get(finding.key), finding.position)
            rows.append(row)
        return rows

    def _text(self, one: Completion | None, position: int | None) -> str | None:
        """A completion's text around a token, that one between >> and <<; without a tokenizer the capture's own."""
        if one is None:
            return None
        if not self.view.text.knows:
            return one.text
        if position is None:
            return self.view.text.decode(one.token_ids)
        return self.view.text.marked(one.token_ids, position, TEXT_COLUMNS)

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
                    "prompt_tokens": len(one.prompt_token_ids) if one.prompt_token_ids is not None else None,
                    "tokens": len(one.token_ids),
                    "finish_reason": one.finish_reason,
                    "first_divergence": self.comparison.first_divergence.get(one.key),
                    "largest_gap": float(known.max()) if len(known) else None,
                    "mean_gap": float(known.mean()) if len(known) else None,
                    "text": self._text(one, None),
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

    def report(self, format: str = "md", *, target: str | None = None, language: str = "en") -> str:
        """A report as `parity report --format` writes it. Raises ParityError for a format that there is not."""
        from parity.report.format import Wanted
        from parity.report.formats import format_named, names
        from parity.report.texts import Texts

        if format not in names():
            raise ParityError(
                message("report.there_no_report", "there is no report format {value!r}", value=format),
                hint=message("report.no_language.hint", "choose one of {languages}", languages=names()),
            )
        return format_named(format).write(self.view, Wanted(Texts(language), target))[0].text

    def save(self, db: PathLike | None = None) -> str:
        """Store it as a run, for `parity tui`, `parity runs` and `parity report`; the run's id. `db`: a database other
        than the usual one, made where there is none. Raises ParityError for two captures of one arm."""
        from parity.store import Store

        with Store.open(None if db is None else Path(db)) as store:
            return save_comparison(
                store, self.baseline, self.candidate, self.comparison, model=self.model, score_files=self.score_files
            )

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
    first = _capture(baseline, partial)
    second = _capture(candidate, partial, beside=first)
    known, paths = _scores(scores)
    inside = [
        look_inside(one, () if isinstance(given, Capture) else steps_beside(Path(given)))
        for one, given in ((first, baseline), (second, candidate))
    ]
    comparison = analyse(first, with_drafts(second, inside[1]), known, tolerance=tolerance, model=directory)
    return Result(first, second, known, with_steps(comparison, *inside), directory, paths)


def _capture(given: PathLike | Capture, partial: bool, beside: Capture | None = None) -> Capture:
    return given if isinstance(given, Capture) else read_capture(Path(given), partial=partial, beside=beside)


def _scores(given: PathLike | Scores | Iterable[PathLike] | None) -> tuple[Scores, tuple[str, ...]]:
    """The scores, and the files that they came from."""
    if given is None:
        return {}, ()
    if isinstance(given, Mapping):
        return given, ()
    paths = [Path(one) for one in ([given] if isinstance(given, str | Path) else given)]
    found = all_scores([read_scores(path) for path in paths])
    return found, tuple(str(path.absolute()) for path in paths)
