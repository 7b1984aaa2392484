"""Adapters: one module per backend, and the worker they all launch."""
