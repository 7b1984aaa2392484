"""An OpenAI-compatible server that runs already, and the program that asks it."""
