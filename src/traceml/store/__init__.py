"""Keeps a run of any length in a bounded database, and reads it back.

In: step records, segments, samples, events, states. Out: windows of steps and blocks, series, states.
Knows: schema, errors, sqlite3. Holds: recent and first steps raw, older ones in coarser levels; quantiles within 1 %,
extremes, sums and counts exact; the file stays under its cap; nothing drops silently.
"""
