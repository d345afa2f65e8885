"""vLLM's OpenAI-compatible server as a child process: started, waited for, stopped with all of its own children.

Invariants: a port that is taken and a model that cannot be served are one line before anything is started; when
the context is left, or this process dies, nothing of the server lives on.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import httpx

from posttrain.contract.pod import reached_at
from posttrain.errors import UserError
from posttrain.models.layout import check_directory
from posttrain.serving.client import ServerFailed
from posttrain.serving.settings import EngineSettings, engine_arguments, on_gpu
from posttrain.serving.settings import variables as engine_variables

log = logging.getLogger(__name__)

NONE: Mapping[str, Any] = MappingProxyType({})
STOP_SECONDS = 20.0  # for the server to end by itself before it is killed
_PR_SET_PDEATHSIG = 1


class ModelServer:
    """`with ModelServer(…) as server:` serves `model` as `name` on `host`:`port`; `log_file` takes what it prints.

    Raises UserError where the directory holds no servable model or the port is taken. `field` names the model in
    errors; `options` and `variables` are added to those of the settings.
    """

    def __init__(
        self, model: Path, settings: EngineSettings, *, host: str, port: int, name: str, log_file: Path,
        field: str = "serve.release", options: Mapping[str, object] = NONE, variables: Mapping[str, str] = NONE,
    ):  # fmt: skip
        check_directory(model, field=field)
        check_port(host, port)
        gpu = on_gpu()
        self._address, self._log = (host, port), log_file
        self._command = [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", host, "--port", str(port),
            "--served-model-name", name, "--disable-uvicorn-access-log", "--enable-scale-out",
            *_options(engine_arguments(settings, model, gpu=gpu, seed=0) | dict(options)),
        ]  # fmt: skip
        self._environment = os.environ | engine_variables(settings, gpu=gpu) | dict(variables)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        host, port = self._address
        return f"http://{reached_at(host)}:{port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> ModelServer:
        parent = os.getpid()
        with open(self._log, "ab") as out:
            self._process = subprocess.Popen(
                self._command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=self._environment,
                start_new_session=True, preexec_fn=lambda: _die_with(parent),
            )  # fmt: skip
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait_healthy(self, seconds: float, on_wait: Callable[[float], None] = lambda waited: None) -> None:
        """Return when `/health` answers; `on_wait` hears twice a second how long it has been.

        Raises UserError where the server ends before that, ServerFailed where it takes longer than `seconds`.
        """
        assert self._process is not None
        started = time.monotonic()
        while (waited := time.monotonic() - started) < seconds:
            if (code := self._process.poll()) is not None:
                raise UserError(f"the server ended with code {code} before it was healthy: {self._complaint()}")
            if healthy(self.url):
                log.info("%s is healthy after %.1f s", self.url, waited)
                return
            on_wait(waited)
            time.sleep(0.25)
        raise ServerFailed(
            f"the server was not healthy after {seconds:g} s", field="serve.start_seconds",
            remedy=f"raise it, or see {self._log.name} of this step in the workspace",
        )  # fmt: skip

    def wait(self) -> int:
        """The exit code of the server, once it has ended."""
        assert self._process is not None
        return self._process.wait()

    def stop(self) -> None:
        """End the server and everything it started. Does nothing where it has ended."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                log.warning("the server did not end within %g s and is killed", STOP_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _complaint(self) -> str:
        """What the log tells of the last error, and where the whole of it is."""
        lines = self._log.read_text(errors="replace").splitlines() or ["it printed nothing"]
        errors = [n for n, line in enumerate(lines) if "Error" in line and "See root cause" not in line]
        told = " ".join(" ".join(lines[errors[-1] if errors else -1 :]).split())
        return f"{told[:400]} (see {self._log})"


def healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).is_success
    except httpx.TransportError:
        return False


def check_port(host: str, port: int) -> None:
    """Raise UserError where nothing can listen on `host`:`port`."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as problem:
            if problem.errno == errno.EADDRINUSE:
                remedy = "stop the program that listens there, or choose another port"
                raise UserError(f"is in use on {host}", field="serve.port", value=port, remedy=remedy) from None
            field, value = ("serve.port", port) if problem.errno == errno.EACCES else ("serve.host", host)
            raise UserError(f"cannot be listened on: {problem.strerror}", field=field, value=value) from None


def _options(arguments: Mapping[str, object]) -> list[str]:
    options = []
    for name, value in arguments.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            options.append(flag)
        elif value is not False:
            options += [flag, str(value)]
    return options


def _die_with(parent: int) -> None:
    """In the child: be terminated when the parent dies, even by SIGKILL."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)
