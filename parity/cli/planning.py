"""Command-line options to a plan, for the commands that make one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click
from click.core import ParameterSource

from parity.capture import is_capture
from parity.cli.config import configuration
from parity.cli.endpoints import backends_of, own_arms
from parity.cli.options import PlanOptions
from parity.errors import ParityError
from parity.messages import message
from parity.paths import expanded
from parity.pipeline.arms import OwnArm
from parity.pipeline.planning import PlanRequest
from parity.pipeline.recorded import Questions, questions_of
from parity.plan.variants import DEPLOYED
from parity.records.sampling import asked


def given(name: str) -> bool:
    """Whether the user wrote this option, rather than leaving it to its default."""
    context = click.get_current_context(silent=True)
    said = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)  # here, or in parity.toml
    return context is None or context.get_parameter_source(name) in said


def asks_something(*prompts: str) -> bool:
    """Whether the user says what is asked; where he does not, a recording says it. `prompts`: the options that name
    these."""
    return any(given(name) for name in (*prompts, "rounds", "samples", *(r.name for r in asked() if r.compared)))


def recorded_questions(own: Sequence[OwnArm], options: PlanOptions) -> Questions | None:
    """What the capture was asked that `--prompts` names, with the user's sampling where he gives some; else what the
    first recording was, unless the user asks something. None without either."""
    if options.prompts is not None and is_capture(options.prompts):
        found = questions_of(options.prompts)
        return replace(found, sampling=options.sampling, rounds=options.rounds) if asks_something() else found
    captures = [arm.settings["capture"] for arm in own if "capture" in arm.settings]
    if not captures or asks_something("prompts", "suite"):
        return None
    return questions_of(expanded(captures[0]))


def plan_request(options: PlanOptions) -> PlanRequest:
    """From the values of the options. Raises ParityError for what was given twice."""
    engine = dict(options.engine)
    sizes = {
        "max_num_seqs": options.max_num_seqs,
        "max_num_batched_tokens": options.max_num_batched_tokens,
        "max_model_len": options.max_model_len,
    }
    for name, value in sizes.items():
        if value is not None:
            if name in engine:
                raise ParityError(
                    message("cli.given_twice", "{name} was given twice", name=name),
                    hint=message("cli.drop_engine", "drop --engine {name}=…", name=name),
                )
            engine[name] = value
    engine.setdefault("seed", options.sampling.seed)
    own = own_arms(options.endpoints)
    explicit = given("backends")
    questions = recorded_questions(own, options)
    return PlanRequest(
        backends=backends_of(options.backends, explicit, own),
        own=own,
        variants=_variants(options),
        baseline=options.baseline,
        model=options.model,
        prompts=options.prompts,
        suite=options.suite,
        num_speculative_tokens=options.num_speculative_tokens,
        arbiter=options.endpoints.arbiter,
        questions=questions,
        sampling=questions.sampling if questions is not None else options.sampling,
        usual=[row.name for row in asked() if row.usual is not None and not given(row.name)],
        rounds=options.rounds if questions is None else questions.rounds,
        score=options.score,
        score_top=options.score_top,
        tolerance=options.tolerance,
        engine=engine,
        positive_controls=options.positive_controls,
        vary=options.hunt.vary,
        named_variants=configuration().variants,
        samples=options.hunt.samples,
        churn=options.hunt.churn_request(),
        record=options.record,
        sketch=options.sketch or "",
        like=options.hunt.like,
        ladder=options.hunt.ladder,
    )


def _variants(options: PlanOptions) -> Sequence[str]:
    """Those asked for; beside a deployment the one that is like it."""
    if given("variants") or not (options.hunt.like or options.hunt.ladder):
        return options.variants
    return ("base", DEPLOYED)
