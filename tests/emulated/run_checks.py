"""Run the checks of one module and print what came of each, as JSON. For an interpreter that has torch and no pytest.

PYTHONPATH=backends ENGINE_PYTHON tests/emulated/run_checks.py tests/emulated/checks/norms.py
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path


def main(path: Path) -> None:
    said = os.dup(1)
    os.dup2(2, 1)  # engines print
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    results = {}
    for name, check in list(vars(module).items()):
        if name.startswith("check_"):
            try:
                check()
                results[name] = None
            except Exception:
                results[name] = traceback.format_exc(limit=-4)
    os.write(said, json.dumps(results).encode())


main(Path(sys.argv[1]))
