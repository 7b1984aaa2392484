"""The program that runs one arm against an OpenAI-compatible server. It travels as one file: see `bundle.py`.

Standard library only (and `tokenizers` where a server answers with text alone), Python 3.9 or newer. It speaks the
same protocol as the vLLM worker (`vllm/worker/__init__.py`): commands in, capture records and events out.
"""
