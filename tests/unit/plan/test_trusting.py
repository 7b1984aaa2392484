"""What a file would run, and whose word it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plans import fake_plan

from parity import trust as trusting
from parity.cli.config import OPTIONS
from parity.cli.plan import plan
from parity.cli.run import run
from parity.cli.watch import watch
from parity.errors import ParityError
from parity.pipeline.directory import write_plan
from parity.plan.config import Config, read_config
from parity.plan.hosts import read_host
from parity.plan.trusting import hosts_to_use, is_numerics, of_config, of_host, of_settings, plan_to_run, take_config
from parity.records.engine_settings import default_settings, pinned_settings
from parity.run.adapters import backend_names, load_backend


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PARITY_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def ignore(_: Any) -> None:
    """Nobody listens."""


def test_what_the_adapters_set_themselves_is_numerics() -> None:
    for name in backend_names():
        backend = load_backend(name)
        for variant in backend.variants:
            for variable, value in backend.env_defaults(variant).items():
                assert is_numerics(variable, value), (name, variable)
            assert list(of_settings(backend.engine_defaults(variant, num_speculative_tokens=2))) == [], name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PYTHONPATH", "x"), ("LD_PRELOAD", "x.so"), ("PATH", "/x"), ("OPENAI_API_KEY", "x"), ("HTTPS_PROXY", "x"),
        ("VLLM_PLUGINS", "x"), ("VLLM_LOGGING_CONFIG_PATH", "x"), ("TRITON_CACHE_DIR", "x"), ("NCCL_NET_PLUGIN", "x"),
        ("OMP_TOOL_LIBRARIES", "x.so"), ("ASCEND_OPP_PATH", "x"), ("VLLM_HOST_IP", "1.2.3.4"), ("VLLM_USE_V1", "/x/y"),
        ("VLLM_USE_V1", "$(x)"), ("FAKE", "1"),
    ],
)  # fmt: skip
def test_no_numerics(name: str, value: str) -> None:
    assert not is_numerics(name, value)


@pytest.mark.parametrize(
    "setting",
    [
        {"trust_remote_code": True}, {"worker_cls": "evil.Worker"}, {"logits_processors": ["evil:P"]},
        {"url": "http://x"}, {"api_key_env": "AWS_SECRET_ACCESS_KEY"}, {"hf_token": "x"},
        {"compilation_config": {"backend": "evil.compile"}}, {"distributed_executor_backend": "evil.Executor"},
        {"kv_transfer_config": {"kv_connector_module_path": "evil"}}, {"middleware": ["evil"]},
        {"otlp_traces_endpoint": "http://x"},
    ],
)  # fmt: skip
def test_settings_that_name_code_or_a_server(setting: dict[str, Any]) -> None:
    assert list(of_settings(setting))


def test_settings_that_a_plan_pins_are_harmless() -> None:
    given = {**dict.fromkeys(pinned_settings(), 4), **default_settings(), "cudagraph_mode": "FULL_AND_PIECEWISE"}
    assert list(of_settings({**given, "dtype": "bfloat16", "file": "golden.jsonl", "trust_remote_code": False})) == []


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("[plan]\nmax-tokens = 3\nbackends = ['cpu']\n", True),
        ("[policy]\ninconclusive = 'fail'\n", True),
        ("[variants.race]\nextends = 'mtp'\nasync_scheduling = true\nenv.VLLM_USE_V2_MODEL_RUNNER = '0'\n", True),
        ("[backends.cuda]\nmodel = '/data/x'\ndevices = ['0', '1']\n", True),
        ("[backends.cuda]\ncommand = 'ssh x'\n", False),
        ("[backends.cpu]\npython = './evil'\n", False),
        ("[backends.cpu]\nsetup = 'touch x'\n", False),
        ("[backends.cpu]\nenv = { LD_PRELOAD = 'x.so' }\n", False),
        ("[backends.prod]\nadapter = 'server'\n", False),
        ("[backends.server]\nengine = { url = 'http://x', api_key_env = 'KEY' }\n", False),
        ("[plan]\nserver = 'http://x'\n", False),
        ("[plan]\nserver_option = { api_key_env = 'KEY' }\n", False),
        ("[plan]\nengine = { trust_remote_code = true }\n", False),
        ("[plan]\nengine = ['worker-cls=evil.Worker']\n", False),
        ("[plan]\nwebhook = 'http://x'\n", False),
        ("[plan]\nlike = 'PYTHONPATH=/evil vllm serve m --worker-cls evil'\n", False),
        ("[plan]\nlike = 'http://x'\n", False),
        ("[plan]\no = '../../.profile'\n", False),
        ('[plan]\nengine = [\'kv_transfer_config={"kv_connector_module_path": "evil"}\']\n', False),
        ('[plan]\nengine = [\'x={"a": {"b": "evil.module"}}\']\n', False),
        ("[plan]\nvary = ['dtype=bfloat16,evil.module']\n", False),
        ("[plan]\nengine = ['speculative_config={\"method\": \"mtp\"}', 'gpu_memory_utilization=0.8']\n", True),
        ("[plan]\ndb = 'some.db'\n", False),
        ("[plan]\nservers = ['http://x']\n", False),
        ("[plan]\npolicy = 'parity.toml'\n", False),
        ("[plan]\npolicy_file = 'parity.toml'\n", False),
        ("[plan]\ntolerance = 50\n", False),
        ("[plan]\nvllm-ascend = './evil'\n", False),
        ("[plan]\ncheckout = './evil'\n", False),
        ("[plan]\nkeep = 0\n", False),
        ("[plan]\nmetrics-port = 80\n", False),
        ("[plan]\nmodel = './model'\nprompts = 'x.jsonl'\n", True),
        ("[variants.x]\nworker_cls = 'evil.Worker'\n", False),
        ("[variants.x]\nenv.PYTHONPATH = 'evil'\n", False),
    ],
)
def test_a_configuration_of_somebody_else(tmp_path: Path, text: str, harmless: bool) -> None:
    path = tmp_path / "parity.toml"
    path.write_text(text)
    config = read_config(path)
    assert (not list(of_config(config))) == harmless
    if harmless:
        take_config(config, ignore)
        return
    with pytest.raises(ParityError, match="is not trusted, and would have set") as caught:
        take_config(config, ignore)
    assert f"parity trust {tmp_path}" in str(caught.value.hint)
    trusting.trust(tmp_path)
    said: list[str] = []
    take_config(config, lambda line: said.append(str(line)))
    assert any(str(path) in line for line in said)
    assert trusting.forget(tmp_path)
    with pytest.raises(ParityError):
        take_config(config, ignore)


def test_options_that_need_trust_are_these() -> None:
    """Any option that a command gets later needs it too, until it is said to ask and nothing else."""
    spelt: set[str] = set()
    for command in (run, plan, watch):
        for option in command.params:
            if option.name not in (*OPTIONS, "plan_file", "resume", "out", "help", "debug"):
                spelt |= {word.lstrip("-").replace("_", "-") for word in (str(option.name), *option.opts)}
    needed = {name for name in spelt if list(of_config(Config(plan={name: "x"})))}
    assert needed == {
        "arbiter", "checkout", "db", "keep", "like", "metrics-address", "metrics-port", "o", "output", "policy",
        "policy-file", "server", "server-option", "server-options", "servers", "tolerance", "vllm-ascend", "webhook",
    }  # fmt: skip


def test_the_model_of_somebody_else_is_named(tmp_path: Path) -> None:
    path = tmp_path / "parity.toml"
    path.write_text(
        "[plan]\nmodel = 'org/\\u001b[2Jx'\n[backends.cpu]\nmodel = '/data/y'\n".replace("'org", '"org').replace(
            "x'\n[", 'x"\n['
        )
    )
    said: list[str] = []
    take_config(read_config(path), lambda line: said.append(str(line)))
    (line,) = [one for one in said if "names" in one]
    assert str(path) in line
    assert "/data/y" in line
    assert "\x1b" not in line
    trusting.trust(tmp_path)
    said.clear()
    take_config(read_config(path), lambda line: said.append(str(line)))
    assert not [one for one in said if "names" in one]


def test_a_file_is_trusted_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("{}")
    trusting.remember(path)
    table = {"cuda": {"command": ["ssh", "x"]}}
    assert hosts_to_use(table, path, ignore).keys() == {"cuda"}
    path.write_text("{ }")
    with pytest.raises(ParityError, match="command = ssh x"):
        hosts_to_use(table, path, ignore)
    assert list(of_host(read_host("cuda", {}, "x"))) == []


def test_what_lies_among_our_own_runs_is_ours(home: Path) -> None:
    inside = home / "runs" / "one" / "run.json"
    inside.parent.mkdir(parents=True)
    inside.write_text("{}")
    assert trusting.trust_in(inside) is trusting.Trust.OWN
    link = home.parent / "link.json"
    link.symlink_to(inside)
    outside = home / "runs" / "two.json"
    outside.symlink_to(home.parent / "elsewhere.json")
    assert trusting.trust_in(outside) is trusting.Trust.NONE


def test_a_plan_from_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    evil = fake_plan(PYTHONPATH="evil")
    write_plan(path, evil)
    plan_to_run(path, ignore)  # ours
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(ParityError, match=r"fake/mtp: env\.PYTHONPATH, which no plan may"):
        plan_to_run(path, ignore)
    trusting.trust(tmp_path)
    with pytest.raises(ParityError, match="which no plan may"):
        plan_to_run(path, ignore)
    odd = fake_plan(PARITY_FAULT="x")
    write_plan(path, odd)
    plan_to_run(path, ignore)
    trusting.forget(path)
    plan_to_run(path, ignore)  # the directory is still trusted
    trusting.forget(tmp_path)
    with pytest.raises(ParityError, match="not trusted"):
        plan_to_run(path, ignore)
