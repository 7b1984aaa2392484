"""Locks on files that the operating system releases when the process that holds them dies."""

from __future__ import annotations

import os
import sys
import time

if sys.platform == "win32":
    import msvcrt

    # Locks of Windows are mandatory, so the byte that is locked lies where no file has one.
    _FAR = 2**62

    def _lock(handle: int, mode: int) -> None:
        here = os.lseek(handle, 0, os.SEEK_CUR)
        os.lseek(handle, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(handle, mode, 1)
        finally:
            os.lseek(handle, here, os.SEEK_SET)

    def lock_now(handle: int) -> bool:
        """Lock the open file, exclusively; False where another process holds it."""
        try:
            _lock(handle, msvcrt.LK_NBLCK)
        except OSError:
            return False
        return True

    def lock(handle: int) -> None:
        """Lock the open file, exclusively; waits until no other process holds it."""
        while not lock_now(handle):
            time.sleep(1.0)

else:
    import fcntl

    def lock_now(handle: int) -> bool:
        """Lock the open file, exclusively; False where another process holds it."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def lock(handle: int) -> None:
        """Lock the open file, exclusively; waits until no other process holds it."""
        fcntl.flock(handle, fcntl.LOCK_EX)
