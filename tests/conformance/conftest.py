"""Each subject is brought up once, and everything is asked of it while it is up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import subjects
from subject import Subject


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """vLLM's own server, for all subjects that ask it."""
    with subjects.real_server(tmp_path_factory.mktemp("server")) as url:
        subjects.SERVERS["vllm"] = url
        yield


@pytest.fixture(scope="module")
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    name: str = request.param
    if name.startswith("vllm-server"):
        request.getfixturevalue("servers")
    directory = tmp_path_factory.mktemp(name)
    with {**subjects.FAST, **subjects.HARDWARE, **subjects.ENGINES}[name](directory) as up:
        one = Subject(name, up, directory)
        try:
            one.session.generate()
            yield one
        finally:
            one.close()
