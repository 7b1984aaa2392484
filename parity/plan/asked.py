"""Sampling parameters of a request that no engine would take: out of range, no tokens of the model, or not while the
engine speculates. Said while the plan is made, before an engine starts."""

from __future__ import annotations

from parity.errors import ParityError
from parity.messages import message
from parity.records.sampling import Sampling


def check_request(request: str, sampling: Sampling, vocab_size: int | None) -> None:
    """Raises ParityError naming the request, the parameter and the token."""
    try:
        sampling.check()
    except ParityError as error:
        raise ParityError(
            message("plan.request_sampling", "request {request}: {problem}", request=request, problem=error.message),
            hint=error.hint,
        ) from None
    size = vocab_size or 2**31
    for row, value in sampling:
        stray = [token for token in row.token_ids(value) if token >= size]
        if stray:
            raise ParityError(
                message(
                    "plan.sampling_vocabulary",
                    "request {request}: {name} has the token id {token}, outside the model's vocabulary of {size}",
                    request=request,
                    name=row.name,
                    token=stray[0],
                    size=size,
                ),
                hint=message("plan.other_tokenizer", "these token ids were made with another tokenizer"),
            )


def check_speculation(arm: str, request: str, sampling: Sampling) -> None:
    """Raises ParityError where vLLM refuses a parameter of the request on an arm that speculates."""
    for row, value in sampling:
        if not row.speculates and row.means_something(value, sampling.temperature):
            raise ParityError(
                message(
                    "plan.refused_with_speculation",
                    "{arm} speculates, and vLLM takes no {name} together with speculative decoding (request {request})",
                    arm=arm,
                    name=row.name,
                    request=request,
                ),
                hint=message(
                    "plan.leave_out_or_do_not_speculate",
                    "leave {name} out, or run arms without speculation: --variants base with several --backends, or "
                    "variants of your own that extend base",
                    name=row.name,
                ),
            )
