"""Tests of the recorder, in real small trainings."""
