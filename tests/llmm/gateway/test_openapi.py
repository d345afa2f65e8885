"""Whatever the gateway's OpenAPI document allows is answered."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import given, settings

from tests.llmm.gateway.conftest import ADMIN, CLIENT, Gateway

pytestmark = pytest.mark.xdist_group("gateway")


@pytest.mark.parametrize("key", [ADMIN, CLIENT])
def test_whatever_the_openapi_document_allows_is_answered_and_is_no_defect(shared: Gateway, key: str):
    schema = schemathesis.openapi.from_url(shared.url + "/openapi.json")
    for operation in (result.ok() for result in schema.get_all_operations()):

        @settings(max_examples=8, database=None, deadline=None, derandomize=True)
        @given(case=operation.as_strategy())
        def law(case: Any) -> None:
            answer = case.call(headers={"Authorization": f"Bearer {key}"}, timeout=60)
            assert answer.status_code < 500, f"{case.method} {case.formatted_path}: {answer.status_code} {answer.text}"

        law()
