"""Sampling parameters as a plan names them: a request's own over the plan's, and what their rows say.

A plan comes with a row for each of its parameters (`parameters`; `parity.records.sampling.wire`). Without them, as
where a worker is started by hand, each is taken for one of vLLM's.
"""

from __future__ import annotations

from .asked import Plan, Record, Request, Rows, Sampling


def rows_of(plan: Plan) -> Rows:
    """What is known of each parameter, by name."""
    return plan.get("parameters") or {}


def sampling_of(plan: Plan, request: Request) -> Sampling:
    """Every parameter of a request: the plan's, and its own over them."""
    wanted = {**plan["sampling"], **(request.get("sampling") or {})}
    if request.get("max_tokens") is not None:
        wanted["max_tokens"] = request["max_tokens"]
    return wanted


def all_sampling(plan: Plan) -> list[Sampling]:
    """Every set of parameters that a plan asks for: the plan's, and those of requests that have their own."""
    return [plan["sampling"], *(sampling_of(plan, one) for one in plan["requests"] if one.get("sampling"))]


def own(request: Request) -> Record:
    """The parameters that are the request's own, as a completion's record has them."""
    given = {"max_tokens": request.get("max_tokens"), "sampling": request.get("sampling")}
    return {name: value for name, value in given.items() if value is not None}
