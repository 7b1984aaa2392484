"""A kit: one archive for a machine that has the engine and no parity, and what comes back from there."""
