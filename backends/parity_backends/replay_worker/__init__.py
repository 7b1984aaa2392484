"""The program that plays a recorded capture as an arm. It travels as one file: see `_bundle.py`.

Standard library only. It speaks the same protocol as the vLLM worker (`parity_backends/worker/__init__.py`).
"""
