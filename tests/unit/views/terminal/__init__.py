"""The terminal's drawing."""
