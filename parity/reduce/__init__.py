"""Narrowing down: a failing case, the settings that matter, the first bad engine version."""
