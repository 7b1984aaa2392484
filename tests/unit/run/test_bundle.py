"""Workers of several modules travel as one file."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import parity_backends.bundle
import parity_backends.vllm.worker
import parity_backends.worker
import pytest
from parity_backends.bundle import bundle
from parity_backends.vllm.cpu import CpuBackend
from parity_backends.vllm.local import RECORDER_MODULES, WORKER_MODULES, worker_source

from parity.plan.checkpoint import read_checkpoint
from parity.records.engine_settings import engine_settings


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    texts = {"__init__": '"""What it is."""\n'}
    monkeypatch.setattr(parity_backends.bundle, "_source", lambda package, module: texts[module])
    bundle.cache_clear()
    return texts


def run(source: bytes) -> dict[str, Any]:
    module = ModuleType("bundled")
    exec(compile(source, "bundled.py", "exec"), module.__dict__)
    return module.__dict__


def test_the_modules_become_one(sources: dict[str, str]) -> None:
    sources["a"] = (
        "import os\nfrom typing import Any, Optional\n\nONE = 1\n\n\ndef one() -> Optional[Any]:\n    return ONE\n"
    )
    sources["b"] = (
        "from __future__ import annotations\n\nimport os\nfrom typing import (\n    IO,\n    Any,\n)\n\n"
        "from .a import (\n    one,\n)\n\nTWO = one() + len(os.sep)\n"
    )
    source = bundle("anything", ("a", "b"))
    assert run(source)["TWO"] == 2
    text = source.decode()
    assert text.startswith('"""What it is."""\n\nfrom __future__ import annotations\n\nimport os\n')
    assert text.count("import os") == 1
    assert "from typing import Any, IO, Optional\n" in text


@pytest.mark.parametrize(
    ("second", "complaint"),
    [
        ("from .a import one as uno\n", "imports one as uno"),
        ("from .a import two\n", "imports two, which no module before it defines"),
        ("def one(): ...\n", "one is defined in a and in b"),
    ],
)
def test_modules_that_are_not_one_are_refused(sources: dict[str, str], second: str, complaint: str) -> None:
    sources["a"] = "def one():\n    return 1\n"
    sources["b"] = second
    with pytest.raises(ValueError, match=complaint):
        bundle("anything", ("a", "b"))


def test_every_module_of_the_worker_is_in_it() -> None:
    own, shared = (
        {path.stem for path in Path(package.__file__).parent.glob("*.py")} - {"__init__"}
        for package in (parity_backends.vllm.worker, parity_backends.worker)
    )
    of_parity = {name for name in WORKER_MODULES if name.startswith(("parity.", "parity:"))}
    assert own | {f"parity_backends.worker:{name}" for name in shared} == (
        {*WORKER_MODULES, *RECORDER_MODULES} - of_parity
    )
    assert of_parity == {
        "parity:plurals",
        "parity:secrecy",
        "parity.records:engine_settings",
        "parity.records:plan_digest",
        "parity.capture:step_table",
        "parity.capture:sketch_table",
    }


def test_the_worker_knows_the_engine_settings_of_the_table() -> None:
    """It travels with the one table: what it reads back is what headers are compared by."""
    theirs = run(worker_source())["engine_settings"]()
    assert theirs == engine_settings()


def test_the_worker_prints_a_checkpoint_as_the_plan_does() -> None:
    worker = run(worker_source())
    model = CpuBackend().default_model()
    assert worker["fingerprint"](str(model)) == dict(read_checkpoint(model).model.fingerprint)
    assert worker["fingerprint"]("some-organisation/some-model") is None


def test_the_digest_of_a_plan_is_what_its_arms_share() -> None:
    digest = run(worker_source())["plan_digest"]
    plan: dict[str, Any] = {
        "requests": [{"id": "p0", "prompt": "text", "prompt_token_ids": [1, 2]}],
        "sampling": {"temperature": 0.0, "max_tokens": 4},
        "rounds": 1,
        "arms": [],
    }
    same = json.loads(json.dumps({**plan, "arms": [{"name": "cpu/base"}], "model": {"path": "/elsewhere"}}))
    assert digest(plan) == digest(same)
    for change in (
        {"rounds": 2},
        {"sampling": {"temperature": 0.0, "max_tokens": 5}},
        {"requests": [{"id": "p0", "prompt_token_ids": [1, 3]}]},
        {"requests": [{"id": "p0", "prompt_token_ids": [1, 2], "max_tokens": 3}]},
    ):
        assert digest(plan) != digest({**plan, **change})
