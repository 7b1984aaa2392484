"""The program that runs one arm in the engine's own interpreter. It travels as one file: see `bundle.py`.

Standard library and the engine only, Python 3.9 or newer; nothing else is there on the far side.

Supervised: its source comes in on stdin (see parity.run.process), then line-oriented JSON commands:
    {"plan": {...}, "arm": "cpu/base", "silence": 60}                     the job, first
    {"op": "generate", "rounds": [0, 1]}                                  completions, then a footer
    {"op": "score", "items": [{arm, request, round, sample, prompt_token_ids, token_ids}, ...], "top": 5}
    {"op": "trial", "requests": [{id, prompt_token_ids, max_tokens?}, ...], "sampling": {...}, "churn": {...}}
                                                  one round of others on the same engine; as "generate"
    {"op": "ping"}                          a sign of life: "silence" seconds without any line end the worker
    {"op": "exit"}
and stdout carries one JSON object a line: capture records ("record": header, completion, score, footer)
and events ("event": starting, ready, progress, unscored, scored, error). Whatever the engine prints goes
to stderr. When stdin ends without "exit" the worker kills its process group: no orphan stays behind.

By hand, on a host that parity cannot reach (capture records go to stdout, all else to stderr):
    python worker.py PLAN.json --arm cpu/base > base.jsonl
    python worker.py PLAN.json --arm cpu/base --score mtp.jsonl > scores.jsonl
"""
