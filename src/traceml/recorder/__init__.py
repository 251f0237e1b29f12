"""Stamps the training's steps and phases into the ring, from inside the training process.

In: the user's calls, torch's hooks. Out: edges and messages in the ring.
Knows: wire, schema, torch. Holds: never waits, never raises into training, leaves nothing on the user's objects.
"""
