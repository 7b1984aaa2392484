"""What a server says of itself, and its counters."""

from __future__ import annotations

import json
import re
from typing import Any

from parity_backends.worker.counters import METRICS
from parity_backends.worker.sentences import message

from .bounds import excerpt
from .receiving import Refused, ServerError
from .transport import Endpoint

MOST_POSITIONS = 1024
"""Draft positions that a server may count; no method drafts as many tokens in a step."""
LARGEST_COUNT = 2.0**62
COUNTER = re.compile(r"^(vllm:[a-z0-9_]+?)(?:_total)?(?:\{([^}]*)\})? ([0-9.eE+-]+)$")
POSITION = re.compile(r'position="(\d+)"')


def describe(endpoint: Endpoint, wanted: str | None) -> dict[str, Any]:
    """The server's model, version and software. Raises ServerError where it is no OpenAI-compatible server, or
    where it serves several models and `wanted` names none of them."""
    found: dict[str, Any] = {"url": endpoint.shown}
    listed = models(endpoint, required=wanted is None)
    names = [str(model.get("id")) for model in listed]
    if wanted is None and len(names) != 1:
        raise ServerError(
            message(
                "server.name_a_model",
                "{url} serves {names}: name one as `model`",
                url=endpoint.shown,
                names=excerpt(", ".join(names)) or message("server.no_model", "no model"),
            )
        )
    if wanted is not None and names and wanted not in names:
        raise ServerError(
            message(
                "server.other_models",
                "{url} does not serve {wanted!r}; it has {names}",
                url=endpoint.shown,
                wanted=wanted,
                names=excerpt(", ".join(names)),
            )
        )
    found["model"] = wanted if wanted is not None else names[0]
    for model in listed:
        if model.get("id") == found["model"]:
            for name, kind in (("owned_by", str), ("root", str), ("max_model_len", int)):
                if isinstance(model.get(name), kind):
                    found[name] = model[name] if kind is int else excerpt(model[name])
    version = optional_json(endpoint, "/version")
    if isinstance(version, dict) and isinstance(version.get("version"), str):
        found["version"] = excerpt(version["version"])
    return found


def models(endpoint: Endpoint, *, required: bool) -> list[dict[str, Any]]:
    try:
        answer = endpoint.get_json("/v1/models")
    except Refused:
        if required:
            raise
        return []  # a proxy that passes the calls on but lists nothing
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or not all(isinstance(model, dict) for model in data):
        raise ServerError(
            message(
                "server.no_list",
                "{url}/v1/models: not a list of models: {said}",
                url=endpoint.shown,
                said=excerpt(json.dumps(answer)),
            )
        )
    return data


def optional_json(endpoint: Endpoint, path: str) -> Any:
    """What a server may or may not have; None where it has not."""
    try:
        return endpoint.get_json(path)
    except ServerError:
        return None


def server_counters(endpoint: Endpoint) -> dict[str, Any]:
    """vLLM's own counters by our names, summed over engines, from /metrics; {} for a server without them.

    They count everything the server does, so other people's requests are in them as well.
    """
    try:
        _, data = endpoint.get("/metrics")
    except ServerError:
        return {}
    return parse_metrics(data.decode("utf-8", "replace"))


def parse_metrics(text: str) -> dict[str, Any]:
    ours = {theirs: name for name, theirs in METRICS.items()}
    found: dict[str, Any] = {}
    for line in text.splitlines():
        match = COUNTER.match(line)
        if match is None or match.group(1) not in ours:
            continue
        name, value = ours[match.group(1)], counted_in(match.group(3))
        if value is None:
            continue
        labelled = POSITION.search(match.group(2) or "")
        if labelled is None:
            total = found.get(name, 0)
            found[name] = total + value if isinstance(total, int) else total
            continue
        position = int(labelled.group(1)[:9])
        row = found.setdefault(name, [])
        if isinstance(row, list) and position < MOST_POSITIONS:
            row += [0] * (position + 1 - len(row))
            row[position] += value
    return found


def counted_in(text: str) -> int | None:
    """A count as metrics have it; None for what is none: the page is not needed, and must not end a run."""
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if 0 <= value <= LARGEST_COUNT else None
