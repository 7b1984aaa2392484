"""Mutated bytes at every door: `python -m tests.hostile.fuzz`."""
