from __future__ import annotations

import pytest

from parity.errors import ParityError
from parity.language import render
from parity.plan.hosts import read_host


def test_a_wrong_setting_is_said_in_chinese() -> None:
    with pytest.raises(ParityError) as caught:
        read_host("gpu", {"replicas": 0}, "parity.toml")
    assert render(caught.value.message, "zh") == "parity.toml: [backends.gpu]:replicas 必须是不小于 1 的整数"
