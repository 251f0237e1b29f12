"""Hooks, one a file: each installs itself, stamps its edges, and takes itself off again.

In: torch's own extension points. Out: edges through the Pen.
Knows: recorder.pen, torch. Holds: an original is called exactly as without us, whatever happens here.
"""
