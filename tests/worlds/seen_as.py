"""One trial as it looks with less known of it: other scores, other logprobs, a server's answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from parity.records import Capture, Completion, Key, TopLogprobs
from worlds.trials import Trial, differing, is_greedy


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
    apart = differing(trial.baseline, trial.candidate)
    arms = (trial.baseline, trial.candidate) if is_greedy(trial.baseline) else (trial.candidate,)
    names = {arm.header.arm for arm in arms}
    scores = {key: top for key, top in trial.scores.items() if key.arm in names and Key(*key[1:]) in apart}
    return replace(_chosen_alone(trial), scores=scores)


def _differing_unsaid(trial: Trial) -> Trial:
    return _no_own(_differing(trial))


def _candidate_alone(trial: Trial) -> Trial:
    """As `--score differing` was until November 2026, and as a script may score."""
    seen = _differing(trial)
    return replace(seen, scores={key: top for key, top in seen.scores.items() if key.arm == trial.candidate.header.arm})


def _candidate_alone_unsaid(trial: Trial) -> Trial:
    return _no_own(_candidate_alone(trial))


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
    "differing, no own": _differing_unsaid,
    "candidate scored": _candidate_alone,
    "candidate, no own": _candidate_alone_unsaid,
    "lists, unscored": _unscored,
    "nothing": _nothing,
    "servers, lists": _server,
    "server, scored": _served_candidate,
    AT_FAULT: _at_fault,
}
"""By name: what `parity run` has by default, and less."""
