"""Tests of the ring, its edges and messages."""
