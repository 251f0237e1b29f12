"""Holds report to what it promises."""
