from __future__ import annotations

import pytest

from parity.errors import ParityError
from parity.language import render
from parity.plan import Plan
from parity.plan.hosts import read_host


def test_a_wrong_setting_is_said_in_chinese() -> None:
    with pytest.raises(ParityError) as caught:
        read_host("gpu", {"replicas": 0}, "parity.toml")
    assert render(caught.value.message, "zh") == "parity.toml: [backends.gpu]：replicas 必须是不小于 1 的整数"


def test_a_wrong_field_is_said_in_chinese() -> None:
    given = {"model": {"name": 3, "path": "/m"}, "requests": [], "arms": [], "baseline": "x/y", "sampling": {}}
    with pytest.raises(ParityError) as caught:
        Plan.from_json({"schema": "parity.plan/1", **given}, "p.json")
    assert render(caught.value.message, "zh") == "p.json：model.name 必须是字符串，而不是 3"
    with pytest.raises(ParityError) as caught:
        Plan.from_json([], "p.json")
    assert render(caught.value.message, "zh") == "p.json：该文件 必须是 JSON 对象，不能是 []"
