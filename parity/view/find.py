"""What somebody named: a finding, or a run."""

from __future__ import annotations

from parity.errors import ParityError
from parity.messages import message
from parity.store import FindingRow, Store
from parity.store.lookup import by_fingerprint


def find_target(store: Store, target: str | None) -> tuple[str, FindingRow | None]:
    """What `target` names: a finding by number or fingerprint, or a run by id, its beginning, or None (newest).

    Raises ParityError where it names nothing, or both a finding and a run.
    """
    text = (target or "").strip()
    if not text:
        return store.run().id, None
    number = text.removeprefix("finding:")
    finding = store.finding(int(number)) if number.isdecimal() and len(number) < 19 else None
    if text.startswith("finding:"):
        if finding is None:
            raise ParityError(
                message(
                    "view.there_no_finding",
                    "there is no finding {number} in {store}",
                    number=number,
                    store=str(store.path),
                ),
                hint=message("view.ids", "`parity runs show --json` has ids"),
            )
        return finding.run, finding
    runs = [run for run in store.runs() if run.id.startswith(text)] if finding is not None else []
    if finding is not None and runs:
        raise ParityError(
            message(
                "view.number_finding_beginning",
                "{text} is the number of a finding and the beginning of run {runs}",
                text=text,
                runs=runs[0].id,
            ),
            hint=message("view.write_finding_more", "write finding:{text}, or more of the run's id", text=text),
        )
    if finding is None and len(text) >= 8 and all(char in "0123456789abcdef" for char in text):
        named = by_fingerprint(store, text)
        if len({row.fingerprint for row in named}) > 1:
            raise ParityError(
                message(
                    "view.begins_fingerprint_several", "{text} begins the fingerprint of several findings", text=text
                ),
                hint=message("view.write_more", "write more of it"),
            )
        if named:
            return named[0].run, named[0]
    if finding is not None:
        return finding.run, finding
    if number.isdecimal() and len(number) < 8 and not any(run.id.startswith(text) for run in store.runs()):
        raise ParityError(
            message(
                "view.there_no_finding", "there is no finding {number} in {store}", number=number, store=str(store.path)
            ),
            hint=message("view.ids", "`parity runs show --json` has ids"),
        )
    return store.run(text).id, None
