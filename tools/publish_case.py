"""Write the folder of an example view from a run: report, reproduction, plots, captures without private paths.

    python tools/publish_case.py RUN_DIRECTORY DATABASE FOLDER [FAULT]

The report is about the worst finding of the positive control FAULT where one is named, else about the run as a whole.
The captures and scores are those of the run, compressed, with every absolute path cut to its last part; compared
again (`parity compare`), they give the same findings. tests/unit/report/test_cases.py holds the folders to that.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

from parity.capture.sealing import FIELD, sealed
from parity.capture.steps import steps_path
from parity.errors import ParityError
from parity.pipeline.directory import RunDirectory
from parity.report.escape import public
from parity.report.format import Wanted
from parity.report.formats.html import html_report
from parity.report.formats.md import bug_reports
from parity.report.plots import plots, write_plots
from parity.report.repro import repro_of, repro_script
from parity.report.texts import Texts
from parity.store import FindingFilter, Store
from parity.view import RunView, of_store

BY_PARITY = "# Written by parity "
"""What the scripts of `parity repro` say of themselves: others are written by hand and stay."""

RANDOM = ("VLLM_DIST_IDENT", "VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME", "PARITY_FAULT_BUNDLE")


_KERNEL = re.compile(r"Linux-[\w.+-]+?-(x86_64|aarch64)")


def neutral(text: str) -> str:
    """Without the release of the kernel, which says more about a machine than about a fault."""
    return _KERNEL.sub(r"Linux-\1", text)


def published(record: dict[str, Any]) -> dict[str, Any]:
    """A record without paths of the machine; only headers and footers can hold any."""
    if record.get("record") == "completion" or record.get("record") == "score":
        return record
    record = public(record)
    variables = record.get("environment", {}).get("variables")
    if isinstance(variables, dict):
        record["environment"]["variables"] = {k: v for k, v in variables.items() if k not in RANDOM}
    return record


def compress(source: Path, target: Path) -> None:
    """JSON Lines, made public, as gzip that is the same for the same content."""
    records = [json.loads(line) for line in source.open(encoding="utf-8")]
    for record in records:
        record.pop(FIELD, None)  # of the bytes before they were made public
    lines = [json.dumps(published(record), separators=(",", ":")) for record in records]
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as file:
        file.writelines(sealed(neutral(line).encode() + b"\n") for line in lines)
    target.write_bytes(buffer.getvalue())


def chosen(store: Store, run: str, fault: str | None) -> RunView:
    """The case: the worst finding of a positive control, or the run."""
    view = of_store(store, run)
    if fault is None:
        return view
    names = frozenset(arm.name for arm in view.controls if arm.name.endswith(f"-{fault}"))
    rows = store.page_findings(run, FindingFilter(arms=names, severities=frozenset({"corrupt"}))) if names else []
    if not rows:
        raise ParityError(f"nothing was found in a positive control {fault}", hint="plant it at a higher rate")
    worst = max(rows, key=lambda row: (row.position is not None, row.gap or 0.0))
    return of_store(store, f"finding:{worst.id}")


def near_tie_script(store: Store, run: str) -> str | None:
    """Where nothing is corrupt: the script of a near-tie, which exits with 0 on an engine without a fault."""
    view = of_store(store, run)
    controls = {arm.name for arm in view.controls}
    rows = store.page_findings(run, FindingFilter(severities=frozenset({"benign"})))
    tie = next((row for row in rows if row.arm not in controls), None)
    if tie is None:
        return None
    view = of_store(store, f"finding:{tie.id}")
    return None if view.chosen is None else repro_script(view, view.chosen)


def project_of(view: RunView) -> str:
    """Whose template the report fills."""
    return "vllm-ascend" if any(arm.name.startswith("ascend") for arm in view.arms) else "vllm"


def publish(directory: RunDirectory, store: Store, folder: Path, fault: str | None) -> None:
    view = chosen(store, directory.run_id, fault)
    report = bug_reports(view, Wanted(Texts(), project_of(view)))[0]
    (folder / "report.md").write_text(neutral(report.markdown), encoding="utf-8")
    page = html_report(of_store(store, directory.run_id))
    (folder / "report.html").write_text(neutral(page), encoding="utf-8")
    script, why_not = repro_of(view)
    if script is None and not view.corrupt:
        script = near_tie_script(store, directory.run_id)
    repro = folder / "repro.py"
    if script is not None:
        repro.write_text(script, encoding="utf-8")
    elif repro.is_file() and BY_PARITY not in repro.read_text(encoding="utf-8"):
        print(f"repro.py stays as it was written by hand: {why_not}", file=sys.stderr)
    else:
        print(f"no repro.py: {why_not}", file=sys.stderr)
        repro.unlink(missing_ok=True)
    captures = folder / "captures"
    captures.mkdir(exist_ok=True)
    for old in (*captures.glob("*.jsonl.gz"), *captures.glob("*.steps")):
        old.unlink()
    for arm in directory.plan().arms:
        source = directory.capture(arm.name)
        compress(source, captures / f"{source.name}.gz")
        steps = steps_path(source)
        if steps.is_file():
            steps_path(captures / f"{source.name}.gz").write_bytes(steps.read_bytes())
    compress(directory.scores, captures / "scores.jsonl.gz")
    write_plots(plots(view.evidence, tolerance=view.tolerance), folder / "plots")


def main(arguments: list[str]) -> int:
    if len(arguments) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    run, database, folder = map(Path, arguments[:3])
    fault = arguments[3] if len(arguments) > 3 else None
    try:
        with Store.open(database, create=False) as store:
            publish(RunDirectory.open(run), store, folder, fault)
    except ParityError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
