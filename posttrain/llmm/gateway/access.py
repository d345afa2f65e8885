"""Who asks: a key in the place where each vendor's SDK puts it, to a client or a trajectory."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from fastapi import Request

from posttrain.errors import UserError
from posttrain.llmm.gateway.errors import GatewayError
from posttrain.llmm.gateway.limits import KeyLimits
from posttrain.llmm.gateway.settings import GatewaySettings
from posttrain.llmm.gateway.trajectories import Responses, Trajectories, digest
from posttrain.llmm.gateway.turn import Caller


class Access:
    """Raises UserError where a client's variable is not set. Keys are kept as digests."""

    def __init__(self, settings: GatewaySettings, trajectories: Trajectories, admin: str,
                 environment: Mapping[str, str] = os.environ):  # fmt: skip
        self._trajectories, self._admin = trajectories, digest(admin)
        self._clients: dict[str, Caller] = {}
        for key in settings.keys:
            secret = environment.get(key.variable)
            if not secret:
                remedy = f"put the key of {key.name} into it"
                raise UserError("is not set", field=key.variable, remedy=remedy)
            self._clients[digest(secret)] = Caller(key.name, KeyLimits(key.limits), Responses())

    def caller(self, http: Request) -> Caller:
        """Raises GatewayError: 401 without a key or with an unknown one, 409 for a trajectory that has ended."""
        key = _key(http)
        if key is None:
            raise GatewayError(401, "no key: give it as your vendor's SDK does", code="missing_api_key")
        if (trajectory := self._trajectories.of_key(key)) is not None:
            return Caller("run", trajectory.limits, trajectory.responses, trajectory)
        if (client := self._clients.get(digest(key))) is not None:
            return client
        raise GatewayError(401, "the key is not known", code="invalid_api_key")

    def check_admin(self, http: Request) -> None:
        """Raises GatewayError: 401, 403."""
        key = _key(http)
        if key is None:
            raise GatewayError(401, "no key: give the gateway's own as `Authorization: Bearer KEY`")
        if not secrets.compare_digest(digest(key), self._admin):
            raise GatewayError(403, "this key may not do that")

    def may_finish(self, http: Request, trajectory_key: str) -> bool:
        """Whether it is the trajectory's own key that asks."""
        key = _key(http)
        return key is not None and secrets.compare_digest(digest(key), trajectory_key)


def admin_key(settings: GatewaySettings, directory: Path) -> str:
    """The gateway's own key: what the variable holds, or one made now, which only its owner can read in `admin.key`."""
    if given := os.environ.get(settings.admin_variable):
        return given
    file = directory / "admin.key"
    if not file.exists():
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as out:
            out.write("pt-admin-" + secrets.token_urlsafe(24))
    return file.read_text()


def _key(http: Request) -> str | None:
    bearer = http.headers.get("authorization") or ""
    if bearer[:7].lower() == "bearer ":
        return bearer[7:].strip()
    return http.headers.get("x-api-key") or http.headers.get("x-goog-api-key") or http.query_params.get("key")
