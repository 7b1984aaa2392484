"""From what the flight recorder saw to what went wrong inside the engine: pure functions over steps files.

    ledger → invariants → violations
    ledger → predicates → association

The ledger is what the scheduler's outputs, the sampler and the drafter imply; an invariant compares the engine with it,
never against another copy inside the engine.
"""
