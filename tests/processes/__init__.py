"""Starts real processes: the command as a person types it, collectors, trainings that die."""
