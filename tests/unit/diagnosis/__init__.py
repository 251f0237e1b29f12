"""Tests the room that turns Facts into a verdict."""
