"""Composition roots, one a command: run (launch and views), node (collect, report), view and runs (readers).

In: the command line. Out: exit codes, lines on stderr, the script's own output untouched.
Knows: every room. Holds: a user's mistake is one line on stderr and exit code 2, never a traceback.
"""
