"""Edges become step records, and records become Facts: pure arithmetic, no file, socket, clock or thread.

In: edge batches, records, blocks. Out: StepBuilder's records and events; Facts.
Knows: schema, wire's edge codes. Holds: the phases of a step add up to its period exactly.
"""
