"""Tests one room at a time, without processes."""
