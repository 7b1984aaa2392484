"""What both sides were asked and how each answers: differences that are no fault of the token streams."""
