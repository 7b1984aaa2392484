"""Change a plan's `mtp` arm to n-gram drafts: python ngram.py PLAN"""

import json
import sys
from pathlib import Path

path = Path(sys.argv[1])
plan = json.loads(path.read_text(encoding="utf-8"))
arm = next(arm for arm in plan["arms"] if arm["variant"] == "mtp")
arm.update(name=arm["backend"] + "/ngram", variant="ngram")
arm["engine"]["speculative_config"] = {
    "method": "ngram",
    "num_speculative_tokens": 3,
    "prompt_lookup_max": 3,
    "prompt_lookup_min": 1,
}
path.write_text(json.dumps(plan), encoding="utf-8")
