"""What the worker and the fault lab read of an engine, held to what each released engine has."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import parity_backends
import parity_faults
import pytest
from parity_backends.vllm.worker.arguments import covers, release
from parity_backends.vllm.worker.table import ASCEND_READ, VLLM_READ
from parity_backends.worker.counters import METRICS
from parity_faults import lab
from parity_faults.rows import DISCARDED

from parity.records.engine_settings import engine_settings

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
from engine_reads import COUNTERS, READS
from make_argument_table import order
from make_engine_contract import DATA, members_of

FAULTS, WORKER = Path(parity_faults.__file__).parent, Path(parity_backends.__file__).parent / "vllm" / "worker"
IN = {
    "runner": ("model runner", "second model runner"),
    "self.runner": ("model runner", "second model runner"),
    "inputs": ("batch of the second runner",),
    "req_states": ("requests of the second runner",),
    "cached": ("running requests of a step",),
    "data": ("new requests of a step",),
    "forward_context": ("forward context",),
    "self.output": ("step",),
    "runner.input_batch": ("batch",),
    "batch": ("batch",),
    "scheduler_output": ("step",),
    "metadata": ("drafts",),
    "spec_decode_metadata": ("drafts",),
    "built": ("gated delta network",),
    "self.engine": ("engine",),
    "engine": ("engine",),
    "llm": ("LLM",),
}
"""What the sources call things of an engine, and where the contract has them."""

OURS = {
    "runner": {"parity_recorder", "parity_rows"},
    "built": {"seq_lens", "slot_mapping"},  # of attention: every backend has them
    "metadata": {"get", "values", "PackageNotFoundError", "distributions", "version"},  # importlib's
    "engine": {"get", "items"},  # a mapping of arguments
    "self.engine": {"get_metrics", "setdefault", "take_sizes"},  # AsyncEngine's, and a mapping again
    "llm": {"generate"},  # public
}


@cache
def data() -> Any:
    return json.loads(DATA.read_text(encoding="utf-8"))


def spans_of(section: str, name: str, package: str = "vllm") -> list[str]:
    """The releases in which the class of a section has a name, in whatever form."""
    found = []
    for fact, spans in data()[package]["facts"].get(section, {}).items():
        if fact.split("(")[0].split(" ")[0] == name:
            found.append(spans)
    return found


def has(section: str, name: str, version: str) -> bool:
    return any(covers(spans, release(version)) for spans in spans_of(section, name))


def sources() -> Iterator[ast.Module]:
    for path in (*FAULTS.glob("*.py"), *WORKER.glob("*.py")):
        yield ast.parse(path.read_text(encoding="utf-8"))


def reads() -> Iterator[tuple[str, str]]:
    """(what the sources call it, attribute) of everything that is read of an engine."""
    for tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                yield ast.unparse(node.value), node.attr
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr") and len(node.args) > 1:
                name = node.args[1]
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    yield ast.unparse(node.args[0]), name.value


def test_the_contract_is_of_the_releases_of_the_table() -> None:
    assert data()["vllm"]["releases"] == VLLM_READ.split()
    releases = data()["vllm_ascend"]["releases"]
    assert [version for version in releases if "rc" not in version] == ASCEND_READ.split()
    assert releases == sorted(releases, key=order)
    numbers = [release(version)[:3] for version in releases if "post" not in version]
    assert len(set(numbers)) == len(numbers)  # a candidate that a release followed is left out


@pytest.mark.parametrize(
    ("written", "default"),
    [
        ("x: int | None = Field(default=None, gt=0)", "None"),
        ("x: int = None", "None"),
        ("x: float = Field(default=0.9, gt=0, le=1)", "0.9"),
        ("x: int = field(default=4)", "4"),
        ("x: list = dataclasses.field(default_factory=list)", "list()"),
        ("x: int = Field(3, gt=0)", "3"),
    ],
)
def test_a_default_is_the_same_however_it_is_written(written: str, default: str) -> None:
    owner = ast.parse(f"class A:\n    {written}").body[0]
    assert isinstance(owner, ast.ClassDef)
    assert members_of(owner, defaults=True) == {"x": f"x = {default}"}


def test_candidates_come_before_their_release_and_patches_after_it() -> None:
    versions = ["0.9.1", "0.23.0.post1", "0.23.0", "0.23.0rc1", "0.11.0rc3"]
    assert sorted(versions, key=order) == ["0.9.1", "0.11.0rc3", "0.23.0rc1", "0.23.0", "0.23.0.post1"]


def test_whatever_is_read_of_an_engine_is_in_the_contract() -> None:
    known = {owner.section: set() for owner in READS}  # type: ignore[var-annotated]
    for owner in READS:
        known[owner.section] |= set(owner.reads)
    unknown = sorted(
        f"{name}.{attribute}"
        for name, attribute in set(reads())
        if name in IN and IN[name]
        and attribute not in set().union(*(known[section] for section in IN[name])) | OURS.get(name, set())
    )  # fmt: skip
    assert unknown == [], "name them in READS of tools/make_engine_contract.py, and run it"
    # That the search finds anything: these are read in places of their own.
    assert {("runner", "requests"), ("runner.input_batch", "req_ids"), ("self.engine", "step")} <= set(reads())


OF_THE_SECOND_RUNNER = {
    "second model runner": "attn_groups device execute_model kv_cache_config load_model max_model_len model "
    "prepare_inputs req_states sample sample_tokens speculative_config speculator vllm_config",
    "batch of the second runner": "idx_mapping input_ids logits_indices num_draft_tokens num_tokens "
    "num_tokens_after_padding positions query_start_loc query_start_loc_np req_ids",
    "requests of the second runner": "draft_tokens req_id_to_index",
    "output of the second runner": "get_output",
}
"""What it has had since 0.12.0, its first release."""

ABSENT = {
    # Rows that are thrown away: what either says counts (`parity_faults.rows`).
    ("model runner", "discard_request_indices"): "0.12.0-0.33.0 (32)",
    ("model runner", "num_discarded_requests"): "0.12.0-0.33.0 (32)",
    ("model runner", "discard_request_mask"): "0.11.0-0.11.2 (3)",
    # The recorder says that it has no such method, and records nothing.
    ("model runner", "_model_forward"): "0.11.0-0.11.0 (1)",
    ("model runner", "sample_tokens"): "0.11.0-0.11.0 (1)",
    # vllm-ascend's own, up to 0.13.0 (`first_runner.FORWARD_DOORS`).
    ("model runner", "_generate_process_reqs_hidden_states"): "0.11.0-0.33.0 (35)",
    # What came in the place of the other (`step_requests.resumed_names`).
    ("running requests of a step", "resumed_from_preemption"): "0.14.0-0.33.0 (30)",
    ("running requests of a step", "resumed_req_ids"): "0.11.0-0.11.0 (1)",
    # The second runner before 0.21.0: the recorder says what it has not, or stops and says so.
    **{("second model runner", name): "0.11.0-0.16.0 (10)" for name in ("model_state", "prepare_attn")},
    ("batch of the second runner", "cu_num_logits_np"): "0.11.0-0.13.0 (5)",
    ("batch of the second runner", "num_draft_tokens_per_req"): "0.11.0-0.20.2 (19)",
    ("batch of the second runner", "is_prefilling_np"): "0.11.0-0.20.2 (19)",
    ("batch of the second runner", "num_reqs_after_padding"): "0.11.0-0.17.1 (12)",
    ("requests of the second runner", "all_token_ids"): "0.11.0-0.16.0 (10)",
    ("requests of the second runner", "total_len"): "0.11.0-0.16.0 (10)",
    ("tokens of the second runner", "num_sampled"): "0.11.0-0.17.1 (12)",
    ("tokens of the second runner", "sampled_token_ids"): "0.11.0-0.12.0 (4)",
    ("states of a hybrid model in the second runner", "num_accepted_tokens_gpu"): "0.11.0-0.20.2 (19)",
    ("states of a hybrid model in the second runner", "prepare_attn"): "0.11.0-0.20.2 (19)",
    **dict.fromkeys(
        ((section, name) for section, names in OF_THE_SECOND_RUNNER.items() for name in names.split()),
        "0.11.0-0.11.2 (3)",
    ),
    ("configuration", "VllmConfig.use_v2_model_runner"): "0.11.0-0.21.0 (20)",
    # `unstable_order` ends there with an AttributeError, before it plants anything.
    ("gated delta network", "non_spec_token_indx"): "0.11.0-0.11.0 (1)",
    ("gated delta network", "spec_token_indx"): "0.11.0-0.11.0 (1)",
    # The fault lab and the recorder take the copy on the device (`delta_net.drafting_rows`, `host_copies`).
    ("gated delta network", "spec_sequence_masks_cpu"): "0.11.0-0.30.0 (32)",
    # One kernel only; then one that is known by the method that runs it (`rows.about_runner`).
    ("prefill of gated delta networks", "_forward_method"): "0.11.0-0.16.0 (10)",
    ("prefill of gated delta networks", "gdn_prefill_backend"): "0.11.0-0.21.0 (20)",
    # Keys and values are not digested: `kv_digests.entry_places`.
    ("attention on a CPU", "do_kv_cache_update"): "0.11.0-0.23.0 (23)",
    # Left out of a capture, of a header: so are arguments of that name (`table.py`).
    ("completion", "spec_decode_metrics"): "0.11.0-0.28.0 (30)",
    ("configuration", "CacheConfig.mamba_cache_mode"): "0.11.0-0.14.1 (7)",
    ("configuration", "CompilationConfig.level"): "0.18.0-0.33.0 (23)",
    ("configuration", "CompilationConfig.mode"): "0.11.0-0.11.0 (1)",
}
"""By section and name, the releases that have not what is read (first, last, how many), and what parity does then."""


def test_every_release_has_what_is_read_or_it_is_known_that_it_has_not() -> None:
    found = {}
    for owner in READS:
        for name in owner.reads:
            full = f"{owner.name}.{name}" if owner.section == "configuration" else name
            without = [version for version in VLLM_READ.split() if not has(owner.section, full, version)]
            if without:
                found[owner.section, full] = f"{without[0]}-{without[-1]} ({len(without)})"
    assert found == ABSENT


def test_counters_are_known_by_their_names_everywhere() -> None:
    assert set(METRICS.values()) | set(lab.COUNTERS.values()) == set(COUNTERS)
    first = VLLM_READ.split()[0]
    assert data()["vllm"]["facts"]["counters"] == dict.fromkeys(COUNTERS, f"{first}-")


def test_what_a_header_is_read_back_from_is_in_the_contract() -> None:
    classes = {owner.name: set(owner.reads) for owner in READS if owner.section == "configuration"}
    parts = {
        "cache_config": "CacheConfig", "scheduler_config": "SchedulerConfig", "model_config": "ModelConfig",
        "parallel_config": "ParallelConfig", "compilation_config": "CompilationConfig", "device_config": "DeviceConfig",
        "speculative_config": "SpeculativeConfig",
    }  # fmt: skip
    for row in engine_settings():
        part, _, name = row.path.partition(".")
        if part in parts:
            assert name in classes[parts[part]], row.path
            assert part in classes["VllmConfig"]


# ------------------------------------------------------------------ what it says of vllm-ascend


@pytest.mark.parametrize("ascend", data()["vllm_ascend"]["releases"])
def test_rows_that_are_thrown_away_can_be_told_on_every_release(ascend: str) -> None:
    """vllm-ascend overrides what fills vLLM's mask: of the places that the fault lab looks at one must be filled."""
    facts = data()["vllm_ascend"]["facts"]["model runner"]
    if covers(facts["no _sample"], release(ascend)):
        return  # faults of the runner are refused, loudly (`hooks.wrap_runner`)
    stale = [fact for fact, spans in facts.items() if " is never filled" in fact and covers(spans, release(ascend))]
    filled = [fact for fact, spans in facts.items() if " is filled by its" in fact and covers(spans, release(ascend))]
    assert any(fact.split(" ")[0] in DISCARDED for fact in filled), (stale, filled)
    masks = [fact for fact in stale if fact.startswith("discard_request_mask")]
    assert bool(masks) == (release("0.12.0") <= release(ascend) <= release("0.20.2"))
