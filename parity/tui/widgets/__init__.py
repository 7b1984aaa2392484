"""Widgets that draw lines themselves, so that a million rows cost what a screenful costs."""
