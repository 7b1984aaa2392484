"""What the worker programs of all backends share: the protocol of the pipe, records, identities, seeds.

Standard library only, Python 3.9 or newer: these modules travel as a part of each program (`bundle.py`).
"""
