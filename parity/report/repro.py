"""The reproduction: one Python file that needs vLLM alone, filled in from a run (`data/repro.py.txt`)."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from parity._version import __version__
from parity.capture import read_capture, read_scores
from parity.capture.shards import is_there
from parity.errors import ParityError
from parity.files import is_file
from parity.messages import Message, message
from parity.records import Capture, Json, Kind, ScoreKey, Scores, TopLogprobs
from parity.records.engine_settings import engine_settings, pinned_settings
from parity.records.kinds import Family
from parity.records.objects import texts_of
from parity.report import facts
from parity.report.escape import public, whole
from parity.report.texts import Texts
from parity.run import starts_an_engine
from parity.text import visible
from parity.view import ArmView, FindingView, Run, RunView

_NOT_NUMERIC = frozenset({"per_request_spec_decode_metrics", "disable_log_stats"})
"""Engine arguments that only make the engine report more; other versions may not know them."""

LARGEST = 4 * 2**20
"""Characters of a script; above, nobody can paste it anywhere."""


def repro_of(view: RunView) -> tuple[str | None, Message | None]:
    """The script for what the case is about, or None and why there is none."""
    if view.baseline_is_at_fault:
        return None, message("report.of_swapped", "it is made from the comparison with the sides swapped.")
    if view.chosen is None or not view.chosen.is_corrupt:
        return None, message("report.nothing_corrupt", "nothing corrupt was found.")
    try:
        return repro_script(view, view.chosen), None
    except ParityError as error:
        return None, error.message


def repro_script(view: RunView, finding: FindingView, *, model: str | None = None) -> str:
    """The script for one finding; `model` becomes its default checkpoint.

    Raises ParityError for a finding that no script of this sort can show.
    """
    _check_finding(view, finding)
    arm = view.arm(finding.arm)
    _check_arm(view, arm)
    expected, near_ties = _expected(view, finding)
    script = _filled(
        {
            "PARITY": _comment(__version__),
            "RUN": _comment(view.run.id),
            "VERSION": _comment(facts.version_line(arm) or "an unknown version"),
            "UNKNOWN": _unknown(view, arm),
            "MODEL_NAME": _comment(view.run.model),
            "TITLE": _comment(facts.title(view, Texts())),
            "BASELINE": _comment(view.run.baseline),
            "MODEL": _literal(model or (view.run.model if "/" in view.run.model else None)),
            "KIND": _literal(finding.kind),
            "TOLERANCE": _literal(view.tolerance if view.tolerance is not None else 0.25),
            "ROUNDS": _literal(max(view.run.rounds, finding.key.round + 1)),
            "ENVIRONMENT": _lines(public(variables_of(arm))),
            "ENGINE": _lines(engine_of(view, arm)),
            "SAMPLING": _lines(dict(view.run.sampling)),
            "REQUESTS": _requests(view),
            "EXPECTED": _lines(expected),
            "NEAR_TIES": _lines(near_ties),
        }
    )
    if len(script) > LARGEST:
        raise ParityError(
            message(
                "report.script_would_characters",
                "the script would have {count:,} characters: the batch is too large to hand on",
                count=len(script),
            ),
            hint=message("report.reduce_run_first", "reduce the run first (`parity reduce`), or run fewer prompts"),
        )
    ast.parse(script)
    return script


def _filled(values: Mapping[str, str]) -> str:
    """The script's text with these at their @NAME@."""
    text = resources.files("parity.report").joinpath("data/repro.py.txt").read_text(encoding="utf-8")
    # One pass: what is filled in may hold an @NAME@ of its own.
    parts = text.split("@")
    return "".join(values.get(part, f"@{part}@") if at % 2 else part for at, part in enumerate(parts))


def engine_of(view: RunView, arm: ArmView) -> dict[str, Json]:
    """The arguments of `vllm.LLM` that the script starts the engine with."""
    engine = dict(arm.planned)
    asked = engine.pop("asked", None)
    if isinstance(asked, Mapping):  # a capture from elsewhere: its header has what was resolved and what was asked
        engine = dict(asked)
    elif view.run.source == "compare":
        arguments = {one.asked.partition(".")[0] for one in engine_settings() if one.in_script}
        engine = {key: value for key, value in engine.items() if key in arguments}
    return {key: value for key, value in engine.items() if key not in _NOT_NUMERIC and key != "model"}


def unknown_settings(view: RunView, arm: ArmView) -> list[str]:
    """Settings that touch numerics and that a capture which parity did not make does not name."""
    known = engine_of(view, arm)
    return [name for name in pinned_settings() if name not in known] if view.run.source == "compare" else []


def _unknown(view: RunView, arm: ArmView) -> str:
    missing = unknown_settings(view, arm)
    if not missing:
        return ""
    lines = textwrap.wrap("Not known from the capture, so vLLM's defaults run: " + ", ".join(missing) + ".", 110)
    return "\n#\n" + "\n".join(f"# {_comment(line)}" for line in lines)


def variables_of(arm: ArmView) -> dict[str, str]:
    variables = arm.variables or _recorded_variables(arm)
    return {name: value for name, value in variables.items() if not name.startswith("PARITY_")}


def _recorded_variables(arm: ArmView) -> dict[str, str]:
    """vLLM's own variables of a capture that was made elsewhere: its plan is not at hand, its header is."""
    recorded = texts_of(arm.environment.get("variables"))
    return {name: value for name, value in recorded.items() if name.startswith("VLLM_")}


def _check_finding(view: RunView, finding: FindingView) -> None:
    """Raises ParityError for a finding that no script of this sort can show."""
    if finding.of_run:
        raise ParityError(
            message("report.finding_about_run", "this finding is about the run as a whole, not about one completion"),
            hint=message(
                "report.name_finding_one", "name a finding of one request: `parity runs show --json` lists them"
            ),
        )
    if Kind(finding.kind).row.family is Family.INPUT:
        raise ParityError(
            message("report.finding_of_input", "the arms were asked different things: no engine need run for that"),
            hint=message("report.ask_the_same", "ask both the same, from one plan (`parity run --plan FILE`)"),
        )
    if Kind(finding.kind).row.family is Family.ENGINE and facts.left_no_trace(view, finding):
        raise ParityError(
            message(
                "report.left_no_trace",
                "the fault left no trace in the tokens of this completion, and a script compares nothing else",
            ),
            hint=message("report.recorded_again", "run it again, recorded (`parity run … --record`)"),
        )
    if not view.run.greedy and Kind(finding.kind).row.needs_expected_tokens:
        raise ParityError(
            message(
                "report.run_sampled_temperature",
                "the run sampled at temperature {temperature}: there are no tokens to expect",
                temperature=view.run.sampling["temperature"],
            ),
            hint=message(
                "report.run_same_prompts",
                "run the same prompts greedily (--temperature 0) and reproduce a finding of that run",
            ),
        )


def _check_arm(view: RunView, arm: ArmView) -> None:
    """Raises ParityError for an arm or a plan that a batch in one engine does not stand for."""
    if not arm.is_vllm and starts_an_engine(arm.backend):
        raise ParityError(
            message(
                "report.not_known_vllm",
                "nothing says that {arm} is vLLM (its capture names no such package), and the script needs it",
                arm=arm.name,
            ),
            hint=message(
                "report.name_versions",
                "if it is, write `versions` into the `environment` of the capture's header (docs/capture.md)",
            ),
        )
    if not starts_an_engine(arm.backend):
        raise ParityError(
            message(
                "report.not_engine_script",
                "{arm} is a {backend}, not an engine that a script can start",
                arm=arm.name,
                backend=arm.backend,
            ),
            hint=message(
                "report.run_same_prompts_engine",
                "run the same prompts on an engine of your own (`parity run --backends …`)",
            ),
        )
    if view.run.churn:
        raise ParityError(
            message(
                "report.requests_came_went",
                "requests came and went while others were decoded (--churn), and the script sends "
                "the whole batch at once",
            ),
            hint=message(
                "report.looks_case_fails",
                "`parity reduce` looks for a case that fails without churn; the plan itself is in the run's directory",
            ),
        )


def _expected(view: RunView, finding: FindingView) -> tuple[dict[str, Json], dict[str, Json]]:
    """(EXPECTED, NEAR_TIES) of the first round, from the baseline's capture and its own scores."""
    if not view.run.greedy:
        return {}, {}
    baseline = _capture(view)
    if baseline is None:
        if finding.baseline is None:
            raise ParityError(
                message(
                    "report.baselines_capture_gone",
                    "the baseline's capture {capture} is gone, so nobody knows what to expect",
                    capture=view.baseline.capture,
                ),
                hint=message("report.put_back_run", "put it back, or run the plan again"),
            )
        stream = finding.baseline
        only = {"tokens": stream.token_ids.tolist(), "finish_reason": stream.finish_reason}
        return {finding.request: {str(stream.sample): only}}, {
            finding.request: {str(position): None for position in range(len(stream.token_ids))}
        }
    scores = baseline_scores(view, baseline)
    tolerance = view.tolerance if view.tolerance is not None else 0.25
    expected: dict[str, Json] = {}
    near: dict[str, Json] = {}
    for completion in baseline:
        key = completion.key
        if key.round != 0:
            continue
        tokens = [int(token) for token in completion.token_ids]
        expected.setdefault(key.request, {})[str(key.sample)] = {
            "tokens": tokens,
            "finish_reason": completion.finish_reason,
        }
        scored = scores.get(ScoreKey(baseline.header.arm, *key))
        ties = near_ties(tokens, scored, tolerance)
        if ties:
            near[key.request] = ties
    return expected, near


def near_ties(tokens: list[int], scored: TopLogprobs | None, tolerance: float) -> dict[str, Json]:
    """Position → tokens within `tolerance` nats of the best; None where the list does not reach that far.

    Where only the expected token is within the tolerance there is no entry.
    """
    found: dict[str, Json] = {}
    for position, token in enumerate(tokens):
        if scored is None or position >= len(scored):
            found[str(position)] = None
            continue
        given = (scored.ids[position] >= 0) & np.isfinite(scored.values[position])
        ids, values = scored.ids[position][given], scored.values[position][given]
        if len(values) < 2 or values.max() - values.min() <= tolerance:
            found[str(position)] = None
            continue
        close = sorted({int(one) for one in ids[values.max() - values <= tolerance]} | {token})
        if close != [token]:
            found[str(position)] = close
    return found


def _capture(view: RunView) -> Capture | None:
    path = view.baseline.capture
    if not path or not is_there(Path(path)):
        return None
    return read_capture(Path(path), partial=True)


def baseline_scores(view: RunView, baseline: Capture) -> Scores:
    """Scores of the run: those in the baseline's capture and those in the files that belong to the run."""
    found: dict[ScoreKey, TopLogprobs] = dict(baseline.scores)
    for path in view.run.score_files:
        found.update(read_scores(path))
    return found


_OWN = ("max_tokens", "sampling")


def _own(run: Run) -> dict[str, dict[str, Json]]:
    """From the plan in the run's directory: the store keeps a request's tokens, not its own sampling parameters."""
    path = Path(run.directory or "") / "plan.json"
    if not run.directory or not is_file(path):
        return {}
    try:
        requests = orjson.loads(path.read_bytes())["requests"]
        return {one["id"]: {name: one[name] for name in _OWN if one.get(name)} for one in requests}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ParityError(
            message("report.cannot_read_plan", "cannot read the plan {path}: {said}", path=str(path), said=str(error)),
            hint=message("report.put_back_run", "put it back, or run the plan again"),
        ) from error


def _requests(view: RunView) -> str:
    own = _own(view.run)
    items: list[dict[str, Json]] = []
    for request in view.requests:
        item: dict[str, Json] = {"id": request.name, "prompt_token_ids": request.prompt_token_ids.tolist()}
        items.append({**item, **own.get(request.name, {})})
    return "[\n" + "".join(f"    {_literal(item)},\n" for item in items) + "]"


def _literal(value: Any) -> str:
    """A Python literal in ASCII."""
    return ascii(whole(value))


def _lines(value: Mapping[str, Any]) -> str:
    """A dictionary literal, one key a line."""
    if not value:
        return "{}"
    return "{\n" + "".join(f"    {_literal(key)}: {_literal(item)},\n" for key, item in value.items()) + "}"


def _comment(text: str) -> str:
    """One line in ASCII that cannot end a comment."""
    return visible(text).encode("ascii", "backslashreplace").decode().replace("\r", " ").replace("\n", " ")
