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


@pytest.mark.parametrize(
    ("variables", "authorization"),
    [
        ({}, None),
        ({"ARGO_TOKEN": "secret"}, "Bearer secret"),
        ({"ARGO_TOKEN": "Basic secret"}, "Basic secret"),
        ({"ARGO_SERVER": "https://me:s%40cret@argo.example"}, "Basic bWU6c0BjcmV0"),
        ({"ARGO_SERVER": "me:se/cr@et@argo.example"}, "Basic bWU6c2UvY3JAZXQ="),
        ({"ARGO_SERVER": "me:secret@argo.example", "ARGO_TOKEN": "better"}, "Bearer better"),
    ],
)
def test_a_token_beats_the_login_in_the_address_and_neither_is_shown(
    variables: dict[str, str], authorization: str | None
) -> None:
    found = read_settings(variables)
    assert found.headers.get("Authorization") == authorization
    assert found.server in (None, "https://argo.example")
    assert not any(word in repr(found) for word in ("cret", "better", "Basic", "Bearer"))


@pytest.mark.parametrize(
    "variables",
    [
        {"ARGO_SERVER": "https://argo.example/?token=secret"},
        {"ARGO_SERVER": "https://me:secret@argo.example#secret"},
        {"ARGO_SERVER": "me:secret@"},
        {"ARGO_TOKEN": "Bearer se\ncret"},
        {"ARGO_TOKEN": "secr\N{LATIN SMALL LETTER E WITH ACUTE}t"},
    ],
)
def test_what_cannot_be_used_is_named_and_not_shown(variables: dict[str, str]) -> None:
    with pytest.raises(UserError) as refused:
        read_settings(variables)
    assert "secr" not in str(refused.value) and "cret" not in str(refused.value)
