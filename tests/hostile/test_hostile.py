"""The short form of the campaigns: a few of each kind. `python -m tests.hostile` is the long one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import bombs
import carried
import deletions
import far
import insides
import kills
import kits
import likes
import models
import notebooks
import projects
import pytest
import servers
import sites
import stores
import surroundings
import watching
from asked import Asked
from judging import Ended

Campaign = Callable[[Asked], Iterator[Ended]]


@pytest.mark.skipif(os.name != "posix", reason="processes are killed and looked at as POSIX has them")
@pytest.mark.parametrize(
    "campaign",
    [bombs.campaign, carried.campaign, deletions.campaign, far.campaign, insides.campaign, kills.campaign, kits.campaign, likes.campaign, models.campaign,
     notebooks.campaign, projects.campaign, servers.campaign, sites.campaign, stores.campaign, surroundings.campaign, watching.campaign],
)  # fmt: skip
def test_nothing_hostile_gets_through(campaign: Campaign) -> None:
    tried = list(campaign(Asked(short=True)))
    assert tried
    assert [one.line() for one in tried if one.problems] == []
