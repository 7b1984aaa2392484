"""The terminal interface: runs, their findings, one finding token by token, triage."""
