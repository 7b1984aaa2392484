"""A fault to be planted on purpose."""

from __future__ import annotations

import atexit
import base64
import os
import sys
import tempfile


def unpack_faults() -> None:
    """A fault to be planted on purpose travels as a zip file in the environment (docs/fault-lab.md).

    It goes on PYTHONPATH too, for engine processes that this one starts.
    """
    packed = os.environ.pop("PARITY_FAULT_BUNDLE", None)
    if packed is None:
        return
    handle, path = tempfile.mkstemp(prefix="parity-fault-", suffix=".zip")
    with os.fdopen(handle, "wb") as file:
        file.write(base64.b64decode(packed))
    atexit.register(os.unlink, path)
    sys.path.insert(0, path)
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = path if not others else path + os.pathsep + others
