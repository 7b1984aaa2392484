"""What `LLM.generate` of vLLM returned, as a capture: for a notebook that has an engine already.

Nothing of vLLM is imported: the attributes of `RequestOutput` and `CompletionOutput` are read (vllm/outputs.py, 0.11 to
0.33 have the same).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from parity.errors import ParityError
from parity.messages import message
from parity.records import Capture, Completion, Header, Json, Key, TopLogprobs

SAMPLING = (
    "temperature", "max_tokens", "n", "seed", "top_p", "top_k", "min_p", "stop", "stop_token_ids", "ignore_eos",
    "min_tokens", "presence_penalty", "frequency_penalty", "repetition_penalty", "logprobs",
)  # fmt: skip


def capture_from_outputs(
    outputs: Iterable[Any],
    arm: str,
    *,
    sampling: Any,
    model: str = "",
    requests: Sequence[str] | None = None,
    engine: Mapping[str, Json] | None = None,
    versions: Mapping[str, str] | None = None,
    round: int = 0,
) -> Capture:
    """A capture of one round.

    `outputs`: what `LLM.generate` returned. `arm`: such as "cuda/mtp". `sampling`: the `SamplingParams` that all had,
    or a mapping. `requests`: a name for each output; by their place without ("p0", "p1", …), for engines count requests
    on. `engine`: the arguments of `LLM`, and `versions`: of packages such as vllm, for reports. Raises ParityError for
    what is no such output.
    """
    backend, slash, variant = arm.rpartition("/")
    completions: dict[Key, Completion] = {}
    for place, output in enumerate(outputs):
        name = requests[place] if requests is not None else f"p{place}"
        for one in _completions(output, Key(name, round, 0)):
            completions[one.key] = one
    asked = sampling if isinstance(sampling, Mapping) else {name: getattr(sampling, name, None) for name in SAMPLING}
    known = {name: value for name, value in asked.items() if value is not None and value != []}
    header = Header(
        arm,
        backend if slash else "own",
        variant,
        model,
        engine=dict(engine or {}),
        sampling={"temperature": 0.0, "n": 1, **known},
        environment={"versions": dict(versions)} if versions else {},
    )
    return Capture(header, completions, {})


def _completions(output: Any, key: Key) -> Iterator[Completion]:
    try:
        prompt = np.array(output.prompt_token_ids, dtype=np.int64)
        for sample, one in enumerate(output.outputs):
            yield Completion(
                key._replace(sample=int(getattr(one, "index", sample))),
                prompt,
                np.array(list(one.token_ids), dtype=np.int64),
                one.text,
                one.finish_reason,
                one.stop_reason,
                _logprobs(one),
            )
    except (AttributeError, TypeError, ValueError) as error:
        raise ParityError(
            message(
                "capture.no_output",
                "output {name} is not one of `LLM.generate`: {said}",
                name=key.request,
                said=str(error),
            ),
            hint=message("capture.give_outputs", "give the list that `LLM.generate(prompts, params)` returned"),
        ) from error


def _logprobs(one: Any) -> TopLogprobs | None:
    """The chosen token first, as captures have it; None where none were asked for."""
    if not one.logprobs:
        return None
    rows = []
    for token, listed in zip(one.token_ids, one.logprobs, strict=True):
        others = [[int(other), float(entry.logprob)] for other, entry in listed.items() if int(other) != int(token)]
        rows.append([[int(token), float(listed[token].logprob)], *others])
    return TopLogprobs.from_json(rows)
