"""Lets vLLM's second model runner run on a processor as it does on a GPU.

Triton's interpreter runs its kernels: here is a backend of Triton that says it is there, and compiles nothing.
`asynchronous.py` leaves asynchronous scheduling on.

vLLM's second model runner asks Triton for an active driver before it runs any kernel; under TRITON_INTERPRET=1 none of
what a driver does is needed. Triton (3.5.1, triton/backends/__init__.py) finds backends by the entry point group
`triton.backends` and takes `compiler` and `driver` of each. The engine's standard library and Triton only, Python 3.9
or newer; parity puts it into an engine environment (`parity env create cpu-v2`).
"""
