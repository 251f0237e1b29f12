"""The words of the house: what everybody else speaks about.

In: nothing. Out: phases, records, distributions, the manifest, metrics, units.
Knows: stdlib only. Holds: records are frozen; absent is None and measured nothing is 0;
nanoseconds and bytes inside, units.py speaks to people.
"""
