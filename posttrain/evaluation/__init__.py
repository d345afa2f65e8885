"""Evaluation: sampling, verifying, statistics and the gate. Import its modules; this one is empty on purpose."""
