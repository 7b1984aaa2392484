"""plan → run → score → compare → store, as one resumable whole."""

from __future__ import annotations

from parity.pipeline.analyse import analyse, arm_result, for_store, plan_of_captures
from parity.pipeline.arbitrate import with_arbiter
from parity.pipeline.arms import OwnArm
from parity.pipeline.capturing import Runner, Session, engines
from parity.pipeline.directory import RunDirectory, find_unfinished, new_run_id
from parity.pipeline.execute import execute
from parity.pipeline.outcome import Outcome
from parity.pipeline.placing import hosts_of_plan, load_adapters, look_at, placed
from parity.pipeline.planning import PlanRequest, check_images, load_backends, locate_model, make_plan, with_lists
from parity.pipeline.releases import for_releases
from parity.pipeline.scoring import score_items

__all__ = [
    "Outcome",
    "OwnArm",
    "PlanRequest",
    "RunDirectory",
    "Runner",
    "Session",
    "analyse",
    "arm_result",
    "check_images",
    "engines",
    "execute",
    "find_unfinished",
    "for_releases",
    "for_store",
    "hosts_of_plan",
    "load_adapters",
    "load_backends",
    "locate_model",
    "look_at",
    "make_plan",
    "new_run_id",
    "placed",
    "plan_of_captures",
    "score_items",
    "with_arbiter",
    "with_lists",
]
