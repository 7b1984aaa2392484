"""A command in the terminal that the interface has left for a while."""

from __future__ import annotations

import signal
import subprocess
import sys

from parity.language import render
from parity.messages import message
from parity.text import visible
from parity.tui.outside import FollowUp

NOT_FOUND = 127
"""As shells report it."""


def run_in_terminal(choice: FollowUp) -> int:
    """Run it, wait, and wait for Enter so that its output can be read. Returns its exit code.

    Ctrl-C is for the command: the interface waits until the command has ended in its own way.
    """
    out = sys.__stdout__
    assert out is not None
    out.write(f"$ {visible(choice.line)}\n")
    out.flush()
    before = signal.signal(signal.SIGINT, lambda *_: None)  # not SIG_IGN: the command would inherit that
    try:
        code = subprocess.run([sys.executable, "-m", "parity", *choice.arguments], check=False).returncode
    except OSError as error:
        code = NOT_FOUND
        said = message("tui.not_started", "it could not be started: {said}", said=str(error))
        out.write(render(said) + "\n")
    finally:
        signal.signal(signal.SIGINT, before)
    ended = message("tui.command_ended", "exit code {code}; Enter goes back to the interface", code=code)
    out.write(f"\n{render(ended)} ")
    out.flush()
    assert sys.__stdin__ is not None
    sys.__stdin__.readline()
    return code
