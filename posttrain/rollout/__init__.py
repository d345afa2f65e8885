"""Rollouts: the TaskServer, and the environments that tasks, tools and verifiers come from. Import its modules."""
