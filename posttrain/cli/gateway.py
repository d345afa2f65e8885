"""`posttrain gateway`: every vendor's interface in front of vLLM servers, on this machine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from posttrain.cli.options import DEFAULT_WORKSPACE, ProfileName, Workspace, existing
from posttrain.contract.config import load_yaml, resolve
from posttrain.contract.record import ROOT
from steps import gateway as step
from workflows.profile import load_profile

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def gateway(
    model: Annotated[str, typer.Argument(help="The model directory in the workspace, as in models/NAME.")],
    engine: Annotated[list[str] | None, typer.Option(help="A vLLM server, http://HOST:PORT; once for each.")] = None,
    stream: Annotated[str, typer.Option(help="The stream that takes finished trajectories.")] = "",
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")] = step.PORT,
    run: Annotated[str, typer.Option(help="Name under runs/ for its journal and log.")] = "gateway",
    file: Annotated[Path | None, typer.Option("--file", "-f", help="YAML of the step's configuration.")] = None,
    profile: ProfileName = "laptop",
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Serve OpenAI's, Anthropic's and Google's interfaces in front of vLLM until Ctrl-C. Each run gets a key, and its
    calls become a trajectory of token ids. The servers must be started with --enable-scale-out."""
    root = existing(workspace)
    config: dict[str, Any] = {"host": "127.0.0.1", "port": port, **(load_yaml(file) if file else {})}
    if engine:
        config.setdefault("gateway", {})["versions"] = [{"name": "main", "replicas": engine}]
    resolve(step.Config, config, where="gateway")
    command = [
        str(ROOT / "envs" / "run"), load_profile(profile).environment(step.SPEC), "python", "-m", step.SPEC.package,
        "--workspace", str(root), "--run", run, "--step", "gateway", "--config", json.dumps(config),
        "--input", f"model={model}", *(("--input", f"stream={stream}") if stream else ()),
    ]  # fmt: skip
    server = subprocess.Popen(command, cwd=ROOT)
    try:
        if _is_ready(server, config["port"]):
            _explain(config["port"], root / "runs" / run / "gateway" / "admin.key")
        sys.exit(server.wait())
    except KeyboardInterrupt:
        sys.exit(0)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def _is_ready(server: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until the gateway listens, with engines or without; False once it has ended instead, and said why."""
    while server.poll() is None:
        try:
            httpx.get(f"http://127.0.0.1:{port}{step.SPEC.ready}", timeout=2)
            return True
        except httpx.TransportError:
            time.sleep(0.2)
    return False


def _explain(port: int, key: Path) -> None:
    address, admin = f"http://127.0.0.1:{port}", f"$(cat {key})" if key.exists() else "$POSTTRAIN_GATEWAY_ADMIN"
    if httpx.get(f"{address}/health", timeout=5).status_code != 200:
        typer.echo("no engine answers yet; requests are refused until one does", err=True)
    typer.echo(f"\nThe gateway is at {address}. A run begins with a key of its own:\n")
    typer.echo(
        f'  curl -s {address}/trajectories -H "Authorization: Bearer {admin}" '
        "-H 'Content-Type: application/json' -d '{\"task\": \"TASK\"}'\n"
    )
    typer.echo("Give it to the agent, which needs no other change:\n")
    typer.echo(f"  OPENAI_BASE_URL={address}/v1 OPENAI_API_KEY=KEY …")
    typer.echo(f"  ANTHROPIC_BASE_URL={address} ANTHROPIC_API_KEY=KEY …\n")
