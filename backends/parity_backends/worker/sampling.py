"""Sampling parameters as a plan names them: a request's own over the plan's, and what their rows say.

A plan comes with a row for each of its parameters (`parameters`; `parity.records.sampling.wire`). Without them, as
where a worker is started by hand, each is taken for one of vLLM's.
"""

from __future__ import annotations

from typing import Any


def rows_of(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What is known of each parameter, by name."""
    return plan.get("parameters") or {}


def sampling_of(plan: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Every parameter of a request: the plan's, and its own over them."""
    wanted = {**plan["sampling"], **(request.get("sampling") or {})}
    if request.get("max_tokens") is not None:
        wanted["max_tokens"] = request["max_tokens"]
    return wanted


def all_sampling(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Every set of parameters that a plan asks for: the plan's, and those of requests that have their own."""
    return [plan["sampling"], *(sampling_of(plan, one) for one in plan["requests"] if one.get("sampling"))]


def own(request: dict[str, Any]) -> dict[str, Any]:
    """The parameters that are the request's own, as a completion's record has them."""
    return {name: request[name] for name in ("max_tokens", "sampling") if request.get(name) is not None}
