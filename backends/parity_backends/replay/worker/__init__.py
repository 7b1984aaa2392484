"""The program that plays a recorded capture as an arm. It travels as one file: see `bundle.py`.

Standard library only. It speaks the same protocol as the vLLM worker (`vllm/worker/__init__.py`).
"""
