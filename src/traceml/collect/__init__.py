"""Tails the rings and samples host, processes and devices from outside the training.

In: a run's ring folder, pids. Out: records into the store, the live slots, the end.
Knows: wire, analysis, store, psutil, NVML. Holds: a dead collector loses nothing that is still in the rings.
"""
