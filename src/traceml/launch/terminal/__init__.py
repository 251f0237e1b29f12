"""Stands between the script and its terminal: a pty for the script, its bytes above a panel of ours.

In: the script's bytes, the user's keys, the panel's rows. Out: what the terminal gets, and the log of what was printed.
Knows: the terminal's modes, size and signals; nothing of what the rows say.
Holds: scroll-back has every line and no row of the panel; at the end the terminal is as it was.
"""
