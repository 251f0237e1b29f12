"""Holds trainings with a known cause, and what is to be said of each."""
