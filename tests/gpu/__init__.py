"""Checks on a real GPU what the unit tests check on a stand-in; `make gpu-check`."""
