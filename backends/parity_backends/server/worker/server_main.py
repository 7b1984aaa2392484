"""Where this worker begins."""

from __future__ import annotations

from typing import IO

from parity_backends.worker.protocol import serve

from .server_arm import ServerArm


def supervised(stream: IO[bytes]) -> None:
    serve(stream, ServerArm)
