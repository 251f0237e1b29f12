"""Holds cli to what it promises."""
