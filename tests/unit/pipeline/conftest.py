from __future__ import annotations

from pathlib import Path

import pytest
from cli_process import Parity


@pytest.fixture
def parity(tmp_path: Path) -> Parity:
    metadata = tmp_path / "site" / "fake_backend-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-backend\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text(
        "[parity.backends]\nfake = backend:FakeBackend\ndear = backend:DearBackend\nearly = backend:EarlyBackend\n"
    )
    return Parity(tmp_path / "home", tmp_path / "site", tmp_path / "starts.txt")
