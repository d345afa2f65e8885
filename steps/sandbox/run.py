from __future__ import annotations

import logging
import threading

from fastapi import FastAPI
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from posttrain.contract import Nothing, StepContext
from posttrain.contract.pod import own_host
from posttrain.rollout.tasks.client import TaskClient
from posttrain.rollout.tasks.worker import Worker
from posttrain.sandbox.drivers import open_driver
from posttrain.sandbox.pool import WarmPool
from posttrain.sandbox.protocol import Driver
from posttrain.service import serve
from steps.sandbox import KIND, Config, Inputs
from steps.sandbox.work import Executor, Loop

log = logging.getLogger(__name__)


def run(context: StepContext, inputs: Inputs, config: Config) -> Nothing:
    """Takes leases until SIGTERM, then ends what is under way and stops every sandbox."""
    loop = Loop()
    driver, pool = loop.submit(_open(config)).result()
    try:
        executor = Executor(loop, pool, config.specs, result_bytes=config.result_bytes)
        with TaskClient(inputs.tasks, field="sandbox.tasks") as client:
            worker = Worker(client, [KIND], executor, concurrency=config.concurrency)
            working = threading.Thread(target=worker.run, name="worker", daemon=True)
            working.start()
            host = own_host(config.host)
            log.info("%s takes tasks of %s, %d at once", worker.name, inputs.tasks, config.concurrency)
            app = create_app(working, pool)
            serve(app, host=host, port=config.port, on_stop=worker.stop, field="sandbox.port")
            worker.stop()
            working.join()
    finally:
        loop.submit(_close(driver, pool)).result()
        loop.close()
    return Nothing()


async def _open(config: Config) -> tuple[Driver, WarmPool]:
    driver = open_driver(config.driver)
    pool = WarmPool(driver, size=config.warm, total=config.warm_total)
    for spec in config.specs.values():
        await pool.prepare(spec)
    return driver, pool


async def _close(driver: Driver, pool: WarmPool) -> None:
    await pool.close()
    await driver.close()


def create_app(working: threading.Thread, pool: WarmPool) -> FastAPI:
    """Health, readiness and metrics of a worker."""
    app = FastAPI(title="Sandbox worker", version="1")
    registry = CollectorRegistry()
    for name, said, value in (
        ("posttrain_sandbox_warm", "sandboxes that wait for a task", lambda: pool.waiting),
        ("posttrain_sandbox_pool_hits", "tasks that found a warm sandbox", lambda: pool.hits),
        ("posttrain_sandbox_pool_misses", "tasks that had to wait for theirs", lambda: pool.misses),
    ):
        Gauge(name, said, registry=registry).set_function(value)

    @app.get("/health")
    @app.get("/ready")
    def alive() -> Response:
        lives = working.is_alive()
        return JSONResponse({"status": "ok" if lives else "the worker has ended"}, 200 if lives else 503)

    @app.get("/metrics")
    def metrics() -> PlainTextResponse:
        return PlainTextResponse(generate_latest(registry).decode())

    return app
