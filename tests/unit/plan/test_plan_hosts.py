"""Hosts: what `[backends.NAME]` and the flags say, and which machine a command leads to."""

from __future__ import annotations

import pytest

from parity.errors import ParityError
from parity.plan.hosts import Host, host_of, place_of, read_host, with_flags


def test_a_host_is_read_in_full() -> None:
    host = read_host(
        "npu-b",
        {
            "adapter": "ascend",
            "command": "ssh -p 2222 user@npu1 docker exec -i 'my vllm'",
            "python": "/opt/venv/bin/python",
            "model": "/data/model",
            "env": {"HCCL_BUFFSIZE": 1024, "X": "a b"},
            "setup": "source /usr/local/Ascend/ascend-toolkit/set_env.sh",
            "devices": [["0", "1"], [2, 3]],
            "engine": {"tensor_parallel_size": 2},
        },
        "parity.toml",
    )
    assert host.command == ("ssh", "-p", "2222", "user@npu1", "docker", "exec", "-i", "my vllm")
    assert host.env == {"HCCL_BUFFSIZE": "1024", "X": "a b"}
    assert host.devices == ("0,1", "2,3")
    assert (host.workers, host.far, host.quoting, host.turn) == (2, True, 1, "npu1:2222")
    assert read_host("npu-b", host.to_json(), "run.json") == host


def test_the_least_that_can_be_said() -> None:
    assert read_host("cuda", {}, "x") == Host("cuda", "cuda")
    assert Host("cuda", "cuda").to_json() == {"adapter": "cuda"}
    assert read_host("cuda", {"devices": [0, 1]}, "x").devices == ("0", "1")
    assert read_host("cuda", {"replicas": 3}, "x").workers == 3


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"comand": "ssh a"}, "no setting 'comand'"),
        ({"command": 3}, "command must be a list of words"),
        ({"command": ["ssh", 3]}, "command must be text"),
        ({"command": "ssh 'a"}, "No closing quotation"),
        ({"env": {"A=B": "x"}}, "cannot be an environment variable"),
        ({"env": {"A": ["x"]}}, "A must be text or a number"),
        ({"env": {"A": "x\0y"}}, "A holds a NUL"),
        ({"python": ""}, "python must be text"),
        ({"devices": []}, "devices must be groups"),
        ({"devices": [[]]}, "devices must be groups"),
        ({"devices": [True]}, "devices must be groups"),
        ({"devices": [" "]}, "an empty group"),
        ({"replicas": 0}, "at least 1"),
        ({"replicas": 3, "devices": ["0", "1"]}, "devices has 2 groups"),
        ({"engine": {"model": "x"}}, "sets model"),
        ({"shells": -1}, "at least 0"),
        ("ssh a", "must be a table"),
    ],
)
def test_mistakes_name_the_setting(table: object, words: str) -> None:
    with pytest.raises(ParityError) as caught:
        read_host("cuda", table, "parity.toml")
    assert words in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("", ""),
        ("docker exec -i a", ""),
        ("/usr/bin/env -i", ""),
        ("ssh gpu1", "gpu1"),
        ("ssh -i key -oPort=3 root@gpu1 docker exec -i b", "gpu1"),
        ("ssh -p2200 gpu1", "gpu1:2200"),
        ("ssh -4 -J jump gpu1", "gpu1"),
        ("ssh jump ssh gpu2", "gpu2"),
        ("docker exec -i c ssh gpu3", "gpu3"),
        ("kubectl exec -i pod -c main --", "kubectl exec -i pod -c main --"),
        ("./on-npu", "./on-npu"),
        ("ssh", "ssh"),
    ],
)
def test_backends_on_one_machine_take_turns(command: str, place: str) -> None:
    assert place_of(command.split()) == place


def test_a_place_can_be_said() -> None:
    assert Host("a", "cuda", command=("./x",), place="gpu1").turn == "gpu1"


def test_flags_win_over_the_configuration() -> None:
    configured = {"cuda": Host("cuda", "cuda", command=("ssh", "old"), python="/old", model="/m")}
    hosts = with_flags(
        configured, ["cuda", "cpu"], command={"cuda": "ssh new"}, python={"cpu": "/py"}, model={"cuda": "/n"}
    )
    assert hosts["cuda"] == Host("cuda", "cuda", command=("ssh", "new"), python="/old", model="/n")
    assert hosts["cpu"] == Host("cpu", "cpu", python="/py")
    here = with_flags(configured, ["cuda"], command={"cuda": ""}, python={}, model={})
    assert not here["cuda"].far
    with pytest.raises(ParityError, match="--host gpu=… names no backend of this run"):
        with_flags(configured, ["cuda"], command={"gpu": "ssh a"}, python={}, model={})


def test_an_arm_finds_its_host_by_the_name_before_the_slash() -> None:
    hosts = {"npu-b": Host("npu-b", "ascend", command=("ssh", "b"))}
    assert host_of(hosts, "npu-b/mtp", "ascend").command == ("ssh", "b")
    assert host_of(hosts, "cpu/mtp", "cpu") == Host("cpu", "cpu")
