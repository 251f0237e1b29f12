"""Compares runs: what moved between them, and whether that is more than chance.

In: Reports of two runs, or of two groups of repeats.
Out: a Comparison: verdict, sentence, waterfall by phase, memory, speed, start.
Knows: the limits of a verdict, and how far a machine drifts from run to run.
Holds: the same Reports give the same Comparison; a file is judged, never trusted.
"""
