"""Holds the tests, and the builders they share."""
