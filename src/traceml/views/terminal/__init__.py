"""The terminal people leave open: the inline panel, and what it shares with the full screen.

In: a Report and its Series. Out: rows of (text, style) pairs, and those as SGR sequences.
Knows: report, schema, views.text. Holds: no row is wider than asked, nothing from the run reaches a terminal raw, and
no meaning hangs on a colour alone.
"""
