"""The ARGO_* variables mean here what they mean to the `argo` command."""

from __future__ import annotations

import pytest

from posttrain.argo.settings import read_settings
from posttrain.errors import UserError


@pytest.mark.parametrize(
    ("variables", "server"),
    [
        ({}, None),
        ({"ARGO_SERVER": ""}, None),
        ({"ARGO_SERVER": "argo.example:2746"}, "https://argo.example:2746"),
        ({"ARGO_SERVER": "argo.example:2746", "ARGO_SECURE": "false"}, "http://argo.example:2746"),
        ({"ARGO_SERVER": "argo.example:2746", "ARGO_SECURE": "true"}, "https://argo.example:2746"),
        ({"ARGO_SERVER": "http://argo.example/"}, "http://argo.example"),
    ],
)
def test_server(variables: dict[str, str], server: str | None) -> None:
    assert read_settings(variables).server == server


def test_certificates_are_verified_unless_told_otherwise() -> None:
    assert read_settings({}).verify
    assert not read_settings({"ARGO_INSECURE_SKIP_VERIFY": "true"}).verify


def test_the_flag_beats_the_variable_and_the_variable_the_default() -> None:
    assert read_settings({}).namespace == "default"
    assert read_settings({"ARGO_NAMESPACE": "team"}).namespace == "team"
    assert read_settings({"ARGO_NAMESPACE": "team"}, namespace="mine").namespace == "mine"


def test_a_switch_that_is_neither_is_named() -> None:
    with pytest.raises(UserError, match="ARGO_SECURE: is neither true nor false"):
        read_settings({"ARGO_SECURE": "maybe"})


def test_the_token_is_not_shown() -> None:
    assert "secret" not in repr(read_settings({"ARGO_TOKEN": "Bearer secret"}))
