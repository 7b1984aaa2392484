"""What somebody named: a finding, or a run."""

from __future__ import annotations

from parity.errors import ParityError
from parity.messages import Message, message
from parity.store import FindingRow, Store
from parity.store.lookup import by_fingerprint


class Absent(ParityError):
    """A run has not what is asked of it: `parity.view.missing` says why, and what would have it."""

    def __init__(self, run: str, said: Message, options: tuple[str, ...] = ()) -> None:
        """`options`: what `parity run` takes for it, beside what is known of the matter."""
        super().__init__(said)
        self.run = run
        self.options = options


def find_target(store: Store, target: str | None) -> tuple[str, FindingRow | None]:
    """What `target` names: a finding by number or fingerprint, or a run by id, its beginning, or None (newest).

    Raises ParityError where it names nothing, or both a finding and a run.
    """
    text = (target or "").strip()
    if not text:
        return store.run().id, None
    number = text.removeprefix("finding:")
    finding = _finding_or_run(store, text) if number == text else _finding_numbered(store, number)
    return (store.run(text).id, None) if finding is None else (finding.run, finding)


def known_arm(store: Store, run: str, arm: str | None) -> None:
    """Raises ParityError for an arm that the run does not have, naming those it has; None is no arm."""
    known = [one.name for one in store.arms(run)]
    if arm is not None and arm not in known:
        raise ParityError(
            message("view.run_no_arm", "run {run} has no arm {arm!r}", run=run, arm=arm),
            hint=message("view.name_one_arm", "name one of {known} with --arm", known=known),
        )


def _numbered(store: Store, text: str) -> FindingRow | None:
    return store.finding(int(text)) if text.isdecimal() and len(text) < 19 else None


def _finding_numbered(store: Store, number: str) -> FindingRow:
    """Raises ParityError where there is none."""
    found = _numbered(store, number)
    if found is None:
        raise ParityError(
            message(
                "view.there_no_finding", "there is no finding {number} in {store}", number=number, store=str(store.path)
            ),
            hint=message("view.ids", "`parity runs show --json` has ids"),
        )
    return found


def _finding_or_run(store: Store, text: str) -> FindingRow | None:
    """The finding that a bare `text` names; None where it may be a run. Raises ParityError where it may be both."""
    finding = _numbered(store, text)
    runs = [run.id for run in store.runs() if run.id.startswith(text)] if text.isdecimal() else []
    if finding is not None and runs:
        raise ParityError(
            message(
                "view.number_finding_beginning",
                "{text} is the number of a finding and the beginning of run {runs}",
                text=text,
                runs=runs[0],
            ),
            hint=message("view.write_finding_more", "write finding:{text}, or more of the run's id", text=text),
        )
    if finding is None and len(text) >= 8 and all(char in "0123456789abcdef" for char in text):
        return _with_fingerprint(store, text)
    if text.isdecimal() and len(text) < 8 and not runs:
        return _finding_numbered(store, text)
    return finding


def _with_fingerprint(store: Store, text: str) -> FindingRow | None:
    """Raises ParityError where it is the beginning of several."""
    named = by_fingerprint(store, text)
    if len({row.fingerprint for row in named}) > 1:
        raise ParityError(
            message("view.begins_fingerprint_several", "{text} begins the fingerprint of several findings", text=text),
            hint=message("view.write_more", "write more of it"),
        )
    return named[0] if named else None
