"""A server that is up, by what it reports of its own configuration.

vLLM reports it where it was started with VLLM_SERVER_DEV_MODE=1, as `/server_info?config_format=json` (0.32,
`entrypoints/serve/dev/server_info`): the resolved configuration, of which the rows of `parity.records.engine_settings`
are read along their paths. What has no row is not taken over.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from parity.errors import BackendError
from parity.messages import Message, message
from parity.plan.matrix import set_nested
from parity.plan.trusting import of_settings
from parity.records import Json
from parity.records.deployment import Deployment
from parity.records.engine_settings import engine_settings
from parity.records.objects import object_of
from parity.secrecy import without_secrets
from parity_backends.server.worker.bounds import is_too_dense
from parity_backends.server.worker.receiving import Refused, ServerError
from parity_backends.server.worker.transport import Endpoint

TIMEOUT = 30.0
"""Seconds: the server looks at its environment before it answers."""

_GRAPHS = {"0": "NONE", "1": "PIECEWISE", "2": "FULL", "(2, 0)": "FULL_DECODE_ONLY", "(2, 1)": "FULL_AND_PIECEWISE"}
"""`CUDAGraphMode` by value, which is what JSON has of it (vLLM 0.32, config/compilation.py)."""

_COMPILATION = "compilation_config.cudagraph_mode"


def from_server(url: str) -> Deployment:
    """What the server's engine was started with, resolved. Raises BackendError where it does not say."""
    found = _asked(url.rstrip("/").removesuffix("/v1"))
    config = found.get("vllm_config")
    if not isinstance(config, Mapping):
        raise _silent(url, message("serve.no_configuration", "its answer holds no configuration"))
    engine: dict[str, Json] = {}
    for row in engine_settings():
        value = _at(config, row.path) if row.path and not row.local else None
        if value is None or (isinstance(value, list) and not value):
            continue
        if row.asked == _COMPILATION:
            value = _GRAPHS.get(str(tuple(value) if isinstance(value, list) else value), value)
        set_nested(engine, row.asked, value.removeprefix("torch.") if isinstance(value, str) else value)
    would = list(of_settings(engine))
    if would:
        raise BackendError(
            message("serve.server_names_code", "{url} reports settings that name code: {found}", url=url, found=would),
            hint=message(
                "serve.own_command", "where you want them, give the command that started it: --like 'vllm serve …'"
            ),
        )
    model = _at(config, "model_config.model")
    return Deployment(engine, {}, model if isinstance(model, str) else None)


def _at(config: Mapping[str, Any], path: str) -> Json:
    """A plain value, or a list of such; None for what is not there or is a configuration itself."""
    value: Any = config
    for name in path.split("."):
        value = object_of(value).get(name)
    listed = value if isinstance(value, list) else [value]
    plain = all(isinstance(one, bool | int | float | str) for one in listed)
    large = any(isinstance(one, int) and abs(one) >= 1 << 63 for one in listed)
    return value if plain and not large else None


def _asked(url: str) -> Mapping[str, Any]:
    server = Endpoint(url, None, TIMEOUT, 0, threading.Event())
    try:
        _, data = server.get("/server_info?config_format=json")
        found = None if is_too_dense(data) else json.loads(data)
    except Refused as error:
        raise _silent(url, f"HTTP {error.status}") from None
    except (ServerError, OSError, ValueError, RecursionError) as error:
        raise _silent(url, str(error)) from None
    if not isinstance(found, Mapping):
        raise _silent(url, type(found).__name__)
    return found


def _silent(url: str, said: Message | str) -> BackendError:
    return BackendError(
        message("serve.silent", "{url} does not report its arguments ({said})", url=without_secrets(url), said=said),
        hint=message(
            "serve.dev_mode",
            "vLLM reports them as /server_info where it was started with VLLM_SERVER_DEV_MODE=1; else give the command "
            "that started it: --like 'vllm serve …'",
        ),
    )
