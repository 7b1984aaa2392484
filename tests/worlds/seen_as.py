"""One trial as it looks with less known of it: other scores, other logprobs, a server's answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from parity.records import Capture, Completion, TopLogprobs
from worlds.trials import Trial


def _each(arm: Capture, change: Callable[[Completion], Completion]) -> Capture:
    return replace(arm, completions={key: change(one) for key, one in arm.completions.items()})


def _own(trial: Trial, change: Callable[[TopLogprobs], TopLogprobs | None]) -> Trial:
    def changed(one: Completion) -> Completion:
        return replace(one, logprobs=one.logprobs and change(one.logprobs))

    return replace(trial, baseline=_each(trial.baseline, changed), candidate=_each(trial.candidate, changed))


def _chosen(top: TopLogprobs) -> TopLogprobs:
    return TopLogprobs(top.ids[:, :1], top.values[:, :1])


def _chosen_alone(trial: Trial) -> Trial:
    return _own(trial, _chosen)


def _no_own(trial: Trial) -> Trial:
    return _own(trial, lambda _: None)


def _differing(trial: Trial) -> Trial:
    """`--score differing`."""
    base, arm = trial.baseline, trial.candidate
    differ = {
        key
        for key, one in arm.completions.items()
        if key not in base.completions or not np.array_equal(one.token_ids, base.completions[key].token_ids)
    }
    scores = {key: top for key, top in trial.scores.items() if key.arm == arm.header.arm and key[1:] in differ}
    return replace(_chosen_alone(trial), scores=scores)


def _unscored(trial: Trial) -> Trial:
    return replace(trial, scores={})


def _nothing(trial: Trial) -> Trial:
    return _unscored(_no_own(trial))


def _server(trial: Trial) -> Trial:
    """The candidate is a server that lists five logprobs, the baseline one as well; nobody scores."""

    def served(arm: Capture) -> Capture:
        header = replace(arm.header, backend="server", engine={}, arm=f"server/{arm.header.variant}")
        return _each(replace(arm, header=header), lambda one: replace(one, spec=None))

    return replace(_unscored(trial), baseline=served(trial.baseline), candidate=served(trial.candidate))


def _served_candidate(trial: Trial) -> Trial:
    """The candidate is a server without logprobs, scored by the baseline's engine."""
    bare = _no_own(trial)
    arm = f"server/{bare.candidate.header.variant}"
    header = replace(bare.candidate.header, backend="server", engine={}, arm=arm)
    scores = {key._replace(arm=arm) if key.arm == trial.candidate.header.arm else key: top
              for key, top in trial.scores.items()}  # fmt: skip
    candidate = _each(replace(bare.candidate, header=header), lambda one: replace(one, spec=None))
    return replace(bare, candidate=candidate, scores=scores)


def _at_fault(trial: Trial) -> Trial:
    """The arms the other way round: it is the baseline that is wrong."""
    seen = _chosen_alone(trial)
    return replace(seen, baseline=seen.candidate, candidate=seen.baseline)


AT_FAULT = "baseline at fault"
"""The view in which nobody may be accused."""

VIEWS: Mapping[str, Callable[[Trial], Trial]] = {
    "scored": _chosen_alone,
    "no own logprobs": _no_own,
    "differing scored": _differing,
    "lists, unscored": _unscored,
    "nothing": _nothing,
    "servers, lists": _server,
    "server, scored": _served_candidate,
    AT_FAULT: _at_fault,
}
"""By name: what `parity run` has by default, and less."""
