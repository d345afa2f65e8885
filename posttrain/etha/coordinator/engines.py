"""Has vLLM change to a version that its workers hold, by the routes it has with VLLM_SERVER_DEV_MODE=1.

Every call may be repeated, so that a coordinator that was killed in the middle starts again from the first. An engine
that was told to change and did not say that it has stays paused: what it holds may be neither version.
"""

from __future__ import annotations

import httpx

# Requests that were kept are prefilled anew, so that no block of the old weights is left to be found.
CACHES = ("/reset_prefix_cache?reset_running_requests=true", "/reset_mm_cache", "/reset_encoder_cache")


class EngineFailed(Exception):
    """What a route answered, in one line."""


async def change(http: httpx.AsyncClient, url: str, version: int, pause: str) -> None:
    """Raises EngineFailed."""
    await _post(http, url, f"/pause?mode={pause}&clear_cache=false")
    try:
        await _post(http, url, "/start_weight_update")
    except EngineFailed as problem:
        if "already active" not in str(problem):  # by a coordinator that died in the middle: it is applied anew
            await _post(http, url, "/resume")  # nothing has been changed
            raise
    await _post(http, url, "/update_weights", {"update_info": {"version": version}})
    await _post(http, url, "/finish_weight_update", {"weight_version": str(version)})
    for cache in CACHES:
        await _post(http, url, cache)
    await _post(http, url, "/resume")


async def _post(http: httpx.AsyncClient, url: str, route: str, body: object = None) -> None:
    try:
        answer = await http.post(url.rstrip("/") + route, json=body)
    except httpx.HTTPError as problem:
        raise EngineFailed(f"{url}{route} does not answer: {problem or type(problem).__name__}") from None
    if answer.is_error:
        raise EngineFailed(f"{url}{route} answered {answer.status_code}: {' '.join(answer.text.split())[:300]}")
    if answer.content and answer.headers.get("content-type") == "application/json":
        said = answer.json()
        if isinstance(said, dict) and said.get("success") is False:
            raise EngineFailed(f"{url}{route} had no success")
