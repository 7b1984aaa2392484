from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import real_run


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two runs: `bbbb`, one corrupt completion among near-ties, and the older `aaaa`, many and two arms."""
    home = tmp_path_factory.mktemp("home")
    real_run.store_run(home, "20261120-100000-aaaa", real_run.MANY, second_arm=True)
    real_run.store_run(home, "20261121-110000-bbbb", real_run.NEEDLE)
    return home


@pytest.fixture
def database(made: Path, tmp_path: Path) -> Path:
    """A database of one's own; the run directories are shared, nothing writes to them."""
    for path in made.glob("parity.db*"):
        shutil.copy(path, tmp_path / path.name)
    return tmp_path / "parity.db"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written to the working directory; the clock of the machine does not show."""
    place = tmp_path / "cwd"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("TZ", "UTC")
