"""Runs real trainings, and what people do beside them, with TraceML and without, and compares."""
