"""Carrying out a run: the state of its nodes, the executions that are under way, and the loop over them."""
