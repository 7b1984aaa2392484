"""Hugging Face transformers in float32: the arbiter, and the program that runs it."""
