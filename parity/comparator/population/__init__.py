"""The run as a whole: rates, noise floor, statistical tests, power."""
