"""What `parity doctor` asks of a host, and what it makes of the answers.

`probe.py` runs on the host, in the engine's interpreter, and only looks. `judge.py` runs here and knows which
versions belong together (`matrix.json`).
"""
