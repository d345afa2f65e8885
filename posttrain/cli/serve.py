"""`posttrain serve`: the released model of a run behind an OpenAI-compatible interface, on this machine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import Annotated

import httpx
import typer

from posttrain.cli.options import DEFAULT_WORKSPACE, ProfileName, RunName, Workspace, existing
from posttrain.contract.record import ROOT
from posttrain.rerun import find_record
from steps import serve as step
from workflows.profile import load_profile

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def serve(
    run: RunName,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")] = 8000,
    profile: ProfileName = "laptop",
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Serve the model that RUN released until Ctrl-C, and print the command to talk to it."""
    root = existing(workspace)
    release = find_record(root, run, "export").outputs["release"]
    config = {"port": port}
    environment = load_profile(profile).environment(step.SPEC)
    command = [
        str(ROOT / "envs" / "run"), environment, "python", "-m", step.SPEC.package,
        "--workspace", str(root), "--run", run, "--step", "serve", "--config", json.dumps(config),
        "--input", f"release={release}",
    ]  # fmt: skip
    server = subprocess.Popen(command, cwd=ROOT)
    try:
        if _is_ready(server, port):
            _explain(port)
        sys.exit(server.wait())
    except KeyboardInterrupt:
        sys.exit(0)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def _is_ready(server: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until the server answers; False once it has ended instead, and said why."""
    while server.poll() is None:
        try:
            if httpx.get(f"http://127.0.0.1:{port}{step.SPEC.ready}", timeout=2).is_success:
                return True
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    return False


def _explain(port: int) -> None:
    address = f"http://127.0.0.1:{port}/v1"
    model = httpx.get(f"{address}/models").json()["data"][0]["id"]
    body = json.dumps({"model": model, "temperature": 0, "messages": [{"role": "user", "content": "What is 7 + 8?"}]})
    typer.echo(f"\n{model} is served at {address}. Talk to it from another terminal:\n")
    typer.echo(f"  curl -s {address}/chat/completions -H 'Content-Type: application/json' -d '{body}'\n")
