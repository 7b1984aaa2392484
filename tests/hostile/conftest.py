"""Processes are forked, bounded and killed as POSIX has them: elsewhere not even the modules can be imported."""

import os

collect_ignore = [] if os.name == "posix" else ["test_hostile.py"]
