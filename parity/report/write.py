"""One call for every format: `write_report(store, what, format, target)` gives the text of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from parity.errors import ParityError
from parity.messages import message
from parity.report.format import REPOSITORIES, Document, Wanted
from parity.report.formats import format_named, names
from parity.report.gate import judge_run
from parity.report.policy import Policy
from parity.report.texts import Texts
from parity.store import Store
from parity.view import of_store
from parity.view.run import MOST_FINDINGS


class ReportOptions(Struct, frozen=True):
    """What a person may choose. `see_also` maps a project to the address of the report filed there."""

    language: str = "en"
    searched: bool = False
    limit: int = MOST_FINDINGS
    see_also: Mapping[str, str] = field(default_factory=dict)
    policy: Policy | None = None
    """For junit, sarif and github: what it allows is skipped, what it finds broken fails."""


def write_report(
    store: Store,
    finding_or_run: str | None,
    format: str = "md",
    target: str | None = None,
    options: ReportOptions | None = None,
) -> str:
    """The report on a finding or a run as text: the first of `documents`."""
    return documents(store, finding_or_run, format, target, options)[0].text


def documents(
    store: Store,
    finding_or_run: str | None,
    format: str = "md",
    target: str | None = None,
    options: ReportOptions | None = None,
) -> Sequence[Document]:
    """The report on a finding or a run, one document for each project concerned where the format is by project.

    `finding_or_run` is a finding's number or fingerprint, a run's id or its beginning, or None for the newest run.
    `format` is one of `parity.report.formats.names()`. `target` is the project that the Markdown is for, one of
    REPOSITORIES. Raises ParityError for anything that does not exist.
    """
    options = options or ReportOptions()
    if format not in names():
        raise ParityError(
            message("report.there_no_report", "there is no report format {value!r}", value=format),
            hint=message("report.no_language.hint", "choose one of {languages}", languages=names()),
        )
    if target is not None and target not in REPOSITORIES:
        raise ParityError(
            message("report.there_no_template", "there is no template for {target!r}", target=target),
            hint=message("report.no_language.hint", "choose one of {languages}", languages=list(REPOSITORIES)),
        )
    texts = Texts(options.language)
    view = of_store(store, finding_or_run, limit=options.limit)
    judgement = None if options.policy is None else judge_run(store, view.run.id, options.policy)
    return format_named(format).write(view, Wanted(texts, target, options.searched, options.see_also, judgement))


__all__ = ["ReportOptions", "documents", "write_report"]
