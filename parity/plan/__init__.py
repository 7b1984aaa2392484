"""The plan: prompts, arms and settings, written down so that another host can run exactly the same."""

from __future__ import annotations

from parity.plan.build import build_plan
from parity.plan.checkpoint import Checkpoint, check_fingerprint, read_checkpoint
from parity.plan.parts import SCORE_MODES, Arm, Model, Request, Score
from parity.plan.prompts import Prompt, load_prompts, load_suite, suite_names
from parity.plan.types import SCHEMA, Plan, parse_tolerance, read_plan
from parity.records import DEFAULT_TOLERANCE
from parity.records.sampling import Sampling

__all__ = [
    "DEFAULT_TOLERANCE",
    "SCHEMA",
    "SCORE_MODES",
    "Arm",
    "Checkpoint",
    "Model",
    "Plan",
    "Prompt",
    "Request",
    "Sampling",
    "Score",
    "build_plan",
    "check_fingerprint",
    "load_prompts",
    "load_suite",
    "parse_tolerance",
    "read_checkpoint",
    "read_plan",
    "suite_names",
]
