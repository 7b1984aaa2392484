"""What kind of fault a stretch of tokens, an end or a completion shows."""
