"""The command `parity`, and `python -m parity`: whatever dies how, exit code 1 means DIVERGED and nothing else.

Python itself ends with 1 where an exception is caught by nobody: an import without memory, a fault in what reports
faults. So this module imports nothing before it can catch that.
"""

import gc
import os
import sys

CRASHED = 70
"""As `parity.cli.main.CRASHED`, which may be what cannot be imported (a test holds them equal)."""


def entry() -> None:
    """The console script."""
    try:
        # Modules, captures and findings are many objects that stay: looking through them for cycles at every 700 new
        # ones takes a tenth of the time of a command, and begins with the first imports. A small command makes fewer
        # than these, and looks through nothing.
        gc.set_threshold(200_000, 20, 20)
        _open_streams()
        from parity.cli.main import entry as run

        run()
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - Python would end with 1
        _last_words(error)
        os._exit(CRASHED)


def _open_streams() -> None:
    """A closed stdin, stdout or stderr is taken by the next file that is opened, and what is said would go into it.

    stdout is then one that takes nothing, so that a lost result is an error; talk is lost in silence.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            found = os.open(os.devnull, flags)
            if found != number:
                os.dup2(found, number)
                os.close(found)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - it stays
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _last_words(error: BaseException) -> None:
    try:
        os.write(2, f"error: parity failed unexpectedly: {type(error).__name__}: {error}\n".encode(errors="replace"))
    except BaseException:  # noqa: BLE001 - no memory even for that
        os._exit(CRASHED)


if __name__ == "__main__":
    entry()
