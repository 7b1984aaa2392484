"""What a reference thinks of each token: scores, gaps, the tolerance."""
