from __future__ import annotations

from pathlib import Path

import pytest
from toy_process import Toy


@pytest.fixture
def parity(tmp_path: Path) -> Toy:
    metadata = tmp_path / "site" / "toy_backend-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-backend\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text("[parity.backends]\ntoy = backend:ToyBackend\n")
    return Toy(tmp_path)
