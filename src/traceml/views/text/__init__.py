"""Plain text: the card, the list of runs, the one-line status.

In: a Report. Out: lines of at most 80 columns, without escape sequences.
Knows: report, schema. Holds: control characters in names never reach a terminal.
"""
