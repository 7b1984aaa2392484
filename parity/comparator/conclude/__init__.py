"""From findings to the verdict and its reasons."""
