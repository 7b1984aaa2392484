"""One module per screen; dialogs together."""
