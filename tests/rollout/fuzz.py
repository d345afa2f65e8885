"""schemathesis against an application's own OpenAPI document: input that fits it, and input that does not."""

from __future__ import annotations

from typing import Any

import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode


def fuzz(app: FastAPI, examples: int) -> int:
    """Send `examples` requests to every operation in each mode, and check each answer against the document; how many
    operations there are. What would wait is made not to."""
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    count = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        count += 1
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
            @given(operation.as_strategy(generation_mode=mode))
            def holds(case: Any) -> None:
                if isinstance(case.body, dict) and isinstance(case.body.get("wait"), int | float):
                    case.body = case.body | {"wait": 0}
                case.call_and_validate()

            try:
                holds()
            except Exception as problem:
                if "Impossible to generate negative" in str(problem) or "Unsatisfiable" in type(problem).__name__:
                    continue  # nothing that a caller can get wrong
                raise
    return count
