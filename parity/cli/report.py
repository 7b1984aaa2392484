"""`parity report` and `parity repro`: what leaves the machine."""

from __future__ import annotations

from pathlib import Path

import click

from parity import language
from parity.cli.gate import policy_option
from parity.cli.output import emit, say
from parity.cli.shared import database_option
from parity.cli.speaking import Misused, OneOf, Refused
from parity.messages import message
from parity.report.format import REPOSITORIES
from parity.report.formats import format_named, names


def _write(path: Path | None, text: str) -> None:
    from parity.errors import writing

    if path is None or str(path) == "-":
        emit(text, document=True)
        return
    with writing(path, message("cli.name_file_directory", "name a file in a directory that exists with -o FILE")):
        path.write_text(text, encoding="utf-8")
    say(message("cli.wrote", "wrote {path}", path=str(path)))


@click.command()
@click.argument("finding_or_run", required=False)
@click.option(
    "--format",
    "format_",
    type=OneOf(names()),
    default="md",
    show_default=True,
    help="md is the bug report, html one self-contained page, github a step summary.",
)
@click.option(
    "--for",
    "target",
    type=OneOf(tuple(REPOSITORIES)),
    help="Whose bug template to fill. [default: every project whose arms diverge]",
)
@click.option("--output", "-o", type=click.Path(path_type=Path), help="File to write. [default: stdout]")
@click.option("--searched", is_flag=True, help="You have searched for known reports: ticks the box of vllm's form.")
@click.option(
    "--see-also",
    multiple=True,
    metavar="PROJECT=URL",
    help="The report of the same fault that is filed with the other project. Repeatable.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="At most this many findings, the worst first.",
)
@click.option(
    "--site",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write an index of all runs there instead, with a page for each that has none yet.",
)
@policy_option
@database_option
def report(
    finding_or_run: str | None,
    format_: str,
    target: str | None,
    output: Path | None,
    searched: bool,
    see_also: tuple[str, ...],
    limit: int,
    site: Path | None,
    policy_file: Path | None,
    db: Path | None,
) -> None:
    """Write a report on a finding or a run.

    FINDING_OR_RUN is the number or the fingerprint of a finding (`parity runs show --json`), or a run's id or
    its beginning; without it the newest run is meant. Markdown fills the bug template of vllm or vllm-ascend;
    where arms of both diverge, it writes a report for each, and each names the other. With --policy, junit, sarif
    and github skip what it allows and name the rules that the run broke.
    """
    from parity.cli import gate
    from parity.report.write import ReportOptions, documents
    from parity.store import Store

    if site is not None:
        _write_site(site, finding_or_run, limit, db)
        return
    chosen = format_named(format_)
    if target is not None and not chosen.by_project:
        raise Misused(
            message(
                "cli.about_markdown_other", "--for is about Markdown: the other formats are the same for every project"
            )
        )
    options = ReportOptions(
        language=language.current() if chosen.for_readers else "en",
        searched=searched,
        limit=limit,
        see_also=_addresses(see_also),
        policy=gate.load(policy_file),
    )
    with Store.open(db, create=False) as store:
        for newest in store.runs(limit=1) if finding_or_run is None else ():
            # A command that ended before its run began leaves an older run as the newest.
            say(message("cli.newest_run", "the newest run: {run} of {created}", run=newest.id, created=newest.created))
        written = documents(store, finding_or_run, format_, target, options)
    for one in written:
        path = output
        if output is not None and str(output) != "-" and len(written) > 1:
            path = output.with_name(f"{output.stem}-{one.project}{output.suffix}")
        _write(path, one.text)
        for line in one.advice:
            say(line)


def _write_site(directory: Path, named: str | None, limit: int, db: Path | None) -> None:
    from parity.report.site import INDEX, write_site
    from parity.store import Store

    if named is not None:
        raise Misused(
            message("cli.site_is_all", "--site is about all runs of the database: name no finding and no run")
        )
    with Store.open(db, create=False) as store:
        new = write_site(store, directory, limit=limit, language=language.current())
    say(message("cli.wrote_site", "wrote {path}; new pages: {count}", path=str(directory / INDEX), count=new))


def _addresses(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for item in given:
        project, sign, address = item.partition("=")
        if not sign or project not in REPOSITORIES or not address.startswith("https://"):
            raise Refused(
                message("cli.not_project_https", "{item!r} is not PROJECT=https://…", item=item),
                option="--see-also",
            )
        found[project] = address
    return found


@click.command()
@click.argument("finding", required=False)
@click.option("--output", "-o", type=click.Path(path_type=Path), help="File to write. [default: stdout]")
@click.option("--model", help="Checkpoint that the script loads without its --model: a name or a directory.")
@database_option
def repro(finding: str | None, output: Path | None, model: str | None, db: Path | None) -> None:
    """Write a Python file that shows a finding with vLLM alone.

    FINDING is the number or the fingerprint of a finding; a run's id, or nothing for the newest run, means its
    worst corrupt finding. The script exits with 1 when the fault shows, 0 when it does not (so it does for a
    near-tie, which is none), 2 when it could not ask.
    """
    from parity.errors import ParityError
    from parity.report.repro import repro_script
    from parity.store import Store
    from parity.view import of_store

    with Store.open(db, create=False) as store:
        view = of_store(store, finding)
        if view.chosen is None or not (view.chosen.is_corrupt or view.asked_for_finding):
            raise ParityError(
                message("cli.run_nothing_corrupt", "run {run} has nothing corrupt to reproduce", run=view.run.id),
                hint=message("cli.name_finding_run", "name a finding, or a run that diverged"),
            )
        _write(output, repro_script(view, view.chosen, model=model))
