"""Adapters: one folder per backend, with the program that runs its arms; `worker` is what the programs share."""
