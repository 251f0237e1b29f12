"""The door between the towers: a ring of raw edges and framed messages in a memory-mapped file, and the run's manifest.

In: edges and messages of one training process. Out: the same, to any reader, while it runs and after it died.
Knows: schema, errors, stdlib. Holds: the writer never waits, locks or grows; what is torn, overwritten or
damaged is detected and counted, never believed; bytes are decoded here and nowhere else.
"""
