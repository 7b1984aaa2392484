"""For every test."""

from __future__ import annotations

import signal

# Started in the background of a shell, Python ignores Ctrl-C, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
