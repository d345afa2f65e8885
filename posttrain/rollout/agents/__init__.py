"""Agent loops: what a policy does with a task. They only talk and call tools; sampling and execution are elsewhere."""
