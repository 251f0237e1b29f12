"""Starts the training and the collector, and sees both end.

In: a command, a run folder. Out: the command's own exit code; a running collector.
Knows: settings, schema, wire's manifest; the collector only by the name of its module. Holds: signals, descriptors and
exit code are the script's own; neither torch nor numpy is imported here.
"""
