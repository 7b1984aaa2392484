"""The program that runs one arm on Hugging Face transformers. It travels as one file: see `bundle.py`.

Standard library, torch, transformers and tokenizers, Python 3.9 or newer. It speaks the same protocol as the vLLM
worker (`vllm/worker/__init__.py`).
"""
