"""Cron workflows: when a run is due (schedule.py), whether it may start (rules.py), and who starts it (scheduler.py)."""
