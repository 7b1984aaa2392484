"""plan → run → score → compare → store, as one resumable whole."""
