"""Facts become findings, findings become the verdict: one rule a function, pure.

In: analysis.Facts. Out: Findings, and the Verdict that leads them.
Knows: analysis, schema. Holds: every compared number stands in thresholds.py; a missing phase makes its own
verdict impossible, never zero; when the data cannot decide, it says so.
"""
