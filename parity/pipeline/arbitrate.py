"""The arbiter: an engine that is no arm scores both sides of every pair that differs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from parity.capture import ScoreFile
from parity.comparator import Comparison
from parity.comparator.conclude.ruled import decided
from parity.comparator.reference.arbiter import rulings, with_rulings
from parity.errors import ParityError
from parity.messages import Say, message
from parity.pipeline.analyse import detokenizer
from parity.pipeline.capturing import Runner, anew
from parity.pipeline.directory import RunDirectory
from parity.pipeline.scoring import disputed, every
from parity.plan import DEFAULT_TOLERANCE, Arm, Plan
from parity.records import Capture, Scores
from parity.run import Backend, OwnSettings, load_backend

VARIANT = "arbiter"


def arbiter_arm(name: str, plan: Plan, backend: Backend | None = None) -> Arm:
    """What scores as the arbiter: the `base` of a backend, at least as long as the plan's requests need.

    Raises ParityError for a backend that cannot score what it did not say itself.
    """
    backend = load_backend(name) if backend is None else backend
    if "base" not in backend.variants:
        raise ParityError(
            message("pipeline.backend_cannot_arbiter", "backend {name!r} cannot be the arbiter", name=name),
            hint=message("pipeline.use_one_engine", "use one with an engine, such as transformers"),
        )
    engine = backend.engine_defaults("base", num_speculative_tokens=1)
    if isinstance(backend, OwnSettings):
        engine = backend.arm_settings(engine)
    else:
        longest = max(len(request.prompt_token_ids) for request in plan.requests)
        engine = {**engine, "max_model_len": longest + plan.sampling.max_tokens + 1}
    return Arm(f"{name}/{VARIANT}", name, VARIANT, engine, backend.env_defaults("base"))


def with_arbiter(plan: Plan, name: str | None) -> Plan:
    """The plan with this backend as its arbiter; as it is where none is named. Raises ParityError."""
    return plan if name is None else replace(plan, arbiter=arbiter_arm(name, plan))


def arbitrate(
    plan: Plan, directory: RunDirectory, runner: Runner, captures: Mapping[str, Capture], say: Say
) -> ScoreFile | None:
    """The arbiter's scores, kept in the run's directory; None without an arbiter or where nothing differs. Where a run
    is sketched it computes all completions: what its modules give is what the profile sets others against.

    Raises BackendError, Interrupted, ParityError as any arm does; what was scored stays.
    """
    if plan.arbiter is None:
        return None
    items = every(plan, captures) if plan.sketch else disputed(plan, captures)
    if not items:
        return None
    with_arbiter = replace(plan, arms=(*plan.arms, plan.arbiter))
    with runner.open(with_arbiter, plan.arbiter, directory, threading.Event()) as session:
        anew(lambda: session.score(items, directory.arbiter, top=plan.score.top), say)
    return ScoreFile(directory.arbiter)


def with_arbitration(
    comparison: Comparison, plan: Plan, baseline: Capture, candidate: Capture, scores: Scores
) -> Comparison:
    """The comparison with the arbiter's word, where there is one and decoding is greedy."""
    if plan.arbiter is None or not scores or plan.sampling.temperature > 0:
        return comparison
    tolerance = plan.tolerance if isinstance(plan.tolerance, float) else DEFAULT_TOLERANCE
    differing = comparison.first_divergence
    ruled = rulings(baseline, candidate, scores, tolerance, detokenizer(Path(plan.model.path)))
    found = {key: one for key, one in ruled.items() if key in differing}
    name = plan.arbiter.backend
    return decided(with_rulings(comparison, found, name, tolerance), found, name)
