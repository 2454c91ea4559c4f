"""Cronwell: a distributed cron and job scheduler."""
__version__ = "0.1.0"
