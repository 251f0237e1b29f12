"""Holds views to what it promises."""
