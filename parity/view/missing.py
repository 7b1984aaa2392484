"""A stored run has not what somebody asks of it: why, and the command that would have it."""

from __future__ import annotations

import shlex

from parity.errors import ParityError
from parity.messages import Message, message
from parity.paths import elsewhere, named_in
from parity.store import Store
from parity.store.rows import RunStatus
from parity.view.at_hand import REPLAY, SERVER, Here
from parity.view.find import Absent
from parity.view.run import RunView
from parity.view.stored import of_store


def unfinished(store: Store, run: str) -> ParityError | None:
    """The error of a run that came to no end, which is why there is nothing; None of one that did, or of
    which an arm was compared."""
    row = store.run(run)
    if any(arm.status == "compared" for arm in store.arms(run)):
        return None
    named = named_in(row.id, elsewhere(store.path))
    if row.status == RunStatus.FAILED or row.verdict == "ERROR":
        return ParityError(
            message("view.run_failed", "run {run} failed, and there is nothing of it to look at", run=row.id),
            hint=message("view.run_failed_why", "`parity runs show {run}` says why it failed", run=named),
        )
    if row.status == RunStatus.INTERRUPTED:
        return ParityError(
            message("view.run_interrupted", "run {run} was interrupted before it was compared", run=row.id),
            hint=message("report.finish", "finish it: `parity run --resume {run}`", run=named),
        )
    if row.status == RunStatus.RUNNING:
        return ParityError(
            message("view.run_running", "run {run} has not come to its end", run=row.id),
            hint=message(
                "view.run_running_wait", "wait for it: `parity runs show {run}` says how far it is", run=named
            ),
        )
    return None


def ways_on(view: RunView) -> list[Message]:
    """What brings a stored run that came to no end to one: what was wrong may be in the plan or beside it."""
    if view.run.status != RunStatus.FAILED:
        return [message("advice.finish", "finish it: `parity run --resume {run}`", run=view.run.named)]
    words = Here(view).as_asked()
    return [
        message(
            "advice.mended",
            "where something beside the plan was wrong (memory, a device, a server, a full disk): mend it, then "
            "`parity run --resume {run}`",
            run=view.run.named,
        ),
        message(
            "advice.asked_otherwise",
            "where it was what the run asks for (a setting, a prompt, the checkpoint): --resume asks the same again, "
            "so change it in `{command}`",
            command=shlex.join(["parity", *words]),
        )
        if words is not None
        else message(
            "advice.asked_anew",
            "where it was what the run asks for (a setting, a prompt, the checkpoint): --resume asks the same again, "
            "so that takes a new run",
        ),
    ]


def without_steps(store: Store, absent: Absent) -> ParityError:
    """Of a run without steps: whether it failed, else the command that records them."""
    if not _starts_nothing(store, absent.run):
        return unfinished(store, absent.run) or ParityError(
            absent.message, hint=_again_with(store, absent.run, "--record")
        )
    hint = message(
        "view.server_records",
        "parity starts no engine of it: a vLLM server records its own steps, which `parity worker --write-recorder "
        "recorder.zip` and `parity compare --steps FILE` are for (docs/steps.md)",
    )
    return unfinished(store, absent.run) or ParityError(absent.message, hint=hint)


def without_sketches(store: Store, absent: Absent) -> ParityError:
    """The same of one without sketches."""
    if not _starts_nothing(store, absent.run):
        return unfinished(store, absent.run) or ParityError(
            absent.message, hint=_again_with(store, absent.run, "--sketch", "parts", *absent.options)
        )
    hint = message("locate.starts_nothing", "parity starts no engine of it, and sketches those alone that it starts")
    return unfinished(store, absent.run) or ParityError(absent.message, hint=hint)


def _again_with(store: Store, run: str, *options: str) -> Message:
    """The command that runs its plan once more with these options, where there is one."""
    view = of_store(store, run, limit=1)
    words = Here(view).on_plan(*options)
    if words is None:
        return message(
            "view.again_with_options",
            "run it again with `{options}`; it was started with `{command}`",
            options=shlex.join(options),
            command=view.run.command,
        )
    return message("view.again_with", "run it again: `{command}`", command=shlex.join(["parity", *words]))


def _starts_nothing(store: Store, run: str) -> bool:
    """Whether parity started no engine for any of its arms: what happens within them is out of its reach."""
    return all(arm.backend in (REPLAY, SERVER) for arm in store.arms(run))
