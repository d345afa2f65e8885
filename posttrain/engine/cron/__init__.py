"""Cron workflows: when a run is due (schedule), whether it may start (rules), and who starts it (scheduler)."""
