"""A cluster with agent-sandbox, as far as a driver sees of one: the API server's answers as the controller gives
them (recorded in `tests/sandbox/recorded.json`), and sandboxd's gRPC service over a sandbox of this machine."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from aiohttp import web
from kubernetes_asyncio import client as kubernetes

from posttrain.sandbox import Sandbox
from posttrain.sandbox.kubernetes.process import stubs
from posttrain.sandbox.protocol import Process

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())
EXTENSIONS = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/{namespace}"
NUMBERS = {"SIGNAL_SIGINT": 2, "SIGNAL_SIGKILL": 9, "SIGNAL_SIGTERM": 15}
messages, services = stubs()

JSON = dict[str, Any]


class Runtime(services.ProcessServiceServicer):
    """sandboxd, with each command run in `sandbox`."""

    def __init__(self, sandbox: Sandbox):
        self.sandbox, self.processes = sandbox, dict[int, Process]()
        self.broken = False

    async def Start(self, request: Any, context: Any) -> AsyncIterator[Any]:
        config = request.config
        process = await self.sandbox.spawn(
            list(config.command), environment=dict(config.env_vars), workdir=config.cwd or None
        )
        number = len(self.processes) + 1
        self.processes[number] = process
        yield messages.StartResponse(init=messages.InitEvent(process_id=number))
        async for stream, piece in process.output():
            yield messages.StartResponse(**{stream: piece})
            if self.broken:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        result = await process.wait()
        yield messages.StartResponse(exit=messages.ExitEvent(exit_code=137 if result.code is None else result.code))

    async def WriteStdin(self, request: Any, context: Any) -> Any:
        process = self.processes[request.process_id]
        if request.WhichOneof("payload") == "eof":
            await process.close_stdin()
        else:
            try:
                await process.write(request.input)
            except BrokenPipeError:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "stdin is closed")
        return messages.WriteStdinResponse()

    async def SendSignal(self, request: Any, context: Any) -> Any:
        process = self.processes[request.process_id]
        if messages.Signal.Name(request.signal) == "SIGNAL_SIGKILL":
            await process.kill()
        else:
            await process.interrupt()
        return messages.SendSignalResponse()


class Cluster:
    """`refuse` maps a plural to the status with which its creation is refused; `conditions` are those that a claim
    goes through, by their names in the recording."""

    def __init__(self, sandbox: Sandbox):
        self.runtime = Runtime(sandbox)
        self.objects: dict[str, dict[str, JSON]] = {"sandboxtemplates": {}, "sandboxwarmpools": {}, "sandboxclaims": {}}
        self.refuse: dict[str, int] = {}
        self.conditions = ["pending", "ready"]
        self.pod: JSON | None = RECORDED["pods"]["running"]
        self.deleted: list[str] = []
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Cluster:
        self._grpc = grpc.aio.server()
        services.add_ProcessServiceServicer_to_server(self.runtime, self._grpc)
        self.grpc_port = self._grpc.add_insecure_port("127.0.0.1:0")
        await self._grpc.start()
        app = web.Application()
        for plural in self.objects:
            base = f"{EXTENSIONS}/{plural}"
            app.router.add_post(base, self._create(plural))
            app.router.add_get(base, self._watch(plural))
            app.router.add_delete(base + "/{name}", self._delete(plural))
        app.router.add_get("/apis/agents.x-k8s.io/v1beta1/namespaces/{namespace}/sandboxes/{name}", self._sandbox)
        app.router.add_get("/api/v1/namespaces/{namespace}/pods/{name}", self._pod)
        self._runner = web.AppRunner(app, shutdown_timeout=0.05)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        (address,) = self._runner.addresses
        self.api = kubernetes.ApiClient(kubernetes.Configuration(host=f"http://127.0.0.1:{address[1]}"))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.api.close()
        await self._runner.cleanup()
        await self._grpc.stop(None)

    def _create(self, plural: str) -> Any:
        async def answer(request: web.Request) -> web.Response:
            if plural in self.refuse:
                return _status(self.refuse[plural])
            made = await request.json()
            name = made["metadata"]["name"]
            if name in self.objects[plural]:
                return _status(409)
            made["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "1"}
            self.objects[plural][name] = made
            if plural == "sandboxclaims":
                asyncio.get_running_loop().create_task(self._reconcile(name))
            return web.json_response(made, status=201)

        return answer

    async def _reconcile(self, name: str) -> None:
        for version, condition in enumerate(self.conditions, start=2):
            await asyncio.sleep(0.02)
            claim = copy.deepcopy(self.objects["sandboxclaims"][name])
            claim["status"] = RECORDED["claims"][condition]
            claim["metadata"]["resourceVersion"] = str(version)
            async with self._changed:
                self.objects["sandboxclaims"][name] = claim
                self._changed.notify_all()

    def _watch(self, plural: str) -> Any:
        async def answer(request: web.Request) -> web.StreamResponse:
            wanted = request.query["fieldSelector"].removeprefix("metadata.name=")
            stream = web.StreamResponse(headers={"content-type": "application/json"})
            await stream.prepare(request)
            seen, end = request.query["resourceVersion"], asyncio.get_running_loop().time() + 1
            while (left := end - asyncio.get_running_loop().time()) > 0:
                found = self.objects[plural].get(wanted)
                if found is not None and found["metadata"]["resourceVersion"] != seen:
                    seen = found["metadata"]["resourceVersion"]
                    await stream.write(json.dumps({"type": "MODIFIED", "object": found}).encode() + b"\n")
                async with self._changed:
                    try:
                        await asyncio.wait_for(self._changed.wait(), min(left, 0.2))
                    except TimeoutError:
                        continue
            return stream

        return answer

    def _delete(self, plural: str) -> Any:
        async def answer(request: web.Request) -> web.Response:
            name = request.match_info["name"]
            self.deleted.append(name)
            found = self.objects[plural].pop(name, None)
            return web.json_response(found) if found else _status(404)

        return answer

    async def _sandbox(self, request: web.Request) -> web.Response:
        return web.json_response(RECORDED["sandbox"])

    async def _pod(self, request: web.Request) -> web.Response:
        return web.json_response(self.pod) if self.pod else _status(404)


def _status(code: int) -> web.Response:
    reasons = {403: "Forbidden", 404: "NotFound", 409: "AlreadyExists", 500: "InternalError"}
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reasons[code], "code": code}
    return web.json_response(body, status=code, reason=reasons[code])
