"""Tests the room that turns records into Facts."""
