"""Building blocks of a route: a step's template from its spec, and tasks that are checked against it."""
