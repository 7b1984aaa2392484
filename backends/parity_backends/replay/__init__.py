"""A recorded capture as an arm, and the program that plays it."""
