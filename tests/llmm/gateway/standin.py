"""An engine that speaks vLLM's `/inference/v1/generate` and says what the prompt tells it to.

    python -m tests.llmm.gateway.standin MODEL_DIRECTORY PORT

The last `SCRIPT [...] END` of a prompt is a JSON list of answers: the first where no answer follows it, and so on.
A prompt without a script is answered with `ok`. Words of a script that begin with `@` are faults:
`@die` ends the connection after the first token, `@half` in the middle of an event, `@hang` says nothing more,
`@500` answers so, `@slow` takes 50 ms for each token, `@long` goes on for ever.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

from aiohttp import web

from posttrain.llmm.tokens.codec import Codec, load_codec

_SCRIPT = re.compile(r"SCRIPT (\[.*\]) END", re.DOTALL)


class StandIn:
    """`seen` holds each request's body, `aborted` the requests whose client left."""

    def __init__(self, codec: Codec, end: str):
        self._codec, self._end = codec, codec.token_id(end)
        self.seen: list[dict[str, Any]] = []
        self.aborted: list[str] = []

    def answer(self, ids: list[int]) -> str:
        text = self._codec.decode(ids)
        found = list(_SCRIPT.finditer(text))
        if not found:
            return "ok"
        script = json.loads(found[-1][1])
        turn = text.count("<|im_start|>assistant", found[-1].end()) - 1
        return script[min(turn, len(script) - 1)]

    async def generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.seen.append(body)
        text = self.answer(body["token_ids"])
        if "@500" in text:
            return web.json_response({"error": {"message": "a defect"}}, status=500)
        parameters = body["sampling_params"]
        ids = self._codec.encode(re.sub(r"@\w+ ?", "", text))
        stop = [s for s in parameters.get("stop") or () if s in self._codec.decode(ids)]
        if stop:
            cut = next(n for n in range(len(ids) + 1) if stop[0] in self._codec.decode(ids[:n]))
            ids = ids[:cut]
        ended = "length" if len(ids) >= parameters.get("max_tokens", 1 << 30) else "stop"
        ids = ids[: parameters.get("max_tokens", len(ids))]
        ids = ids if ended == "length" or stop else [*ids, self._end]
        samples = range(parameters.get("n", 1))
        if not body.get("stream"):
            if "@slow" in text or "@hang" in text:
                await asyncio.sleep(3600 if "@hang" in text else 0.05 * len(ids))
            choices = [self._piece(i, ids, parameters, ended, stop) for i in samples]
            return web.json_response({"request_id": body["request_id"], "choices": choices})
        return await self._stream(request, body, text, ids, ended, stop)

    async def _stream(
        self, request: web.Request, body: dict[str, Any], text: str, ids: list[int], ended: str, stop: list[str]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        parameters = body["sampling_params"]
        try:
            for place in range(10_000_000 if "@long" in text else len(ids)):
                token, last = (
                    ids[min(place, len(ids) - (2 if "@long" in text else 1))],
                    place == len(ids) - 1 and "@long" not in text,
                )
                for sample in range(parameters.get("n", 1)):
                    piece = self._piece(sample, [token], parameters, ended if last else None, stop if last else [])
                    event = f"data: {json.dumps({'request_id': body['request_id'], 'choices': [piece]})}\n\n".encode()
                    if place == 1 and "@half" in text:
                        await response.write(event[: len(event) // 2])
                        return response
                    await response.write(event)
                if "@die" in text:
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                if "@hang" in text:
                    await asyncio.sleep(3600)
                if "@slow" in text or "@long" in text:
                    await asyncio.sleep(0.05 if "@slow" in text else 0.001)
            await response.write(b"data: [DONE]\n\n")
        except (ConnectionError, asyncio.CancelledError):
            self.aborted.append(body["request_id"])
            raise
        return response

    def _piece(
        self, index: int, ids: list[int], parameters: dict[str, Any], ended: str | None, stop: list[str]
    ) -> dict[str, Any]:
        top = parameters.get("logprobs") or 0
        content = [
            {"token_id": i, "logprob": -(i % 100) / 100,
             "top_logprobs": [{"token_id": (i + n) % 400, "logprob": -(i % 100) / 100 - n} for n in range(top + 1)]}
            for i in ids
        ]  # fmt: skip
        piece: dict[str, Any] = {
            "index": index, "token_ids": ids, "logprobs": {"content": content}, "finish_reason": ended,
            "stop_reason": stop[0] if stop else None,
        }  # fmt: skip
        if ended:
            piece["weight_versions"] = None
        return piece

    def app(self) -> web.Application:
        async def health(request: web.Request) -> web.Response:
            return web.Response()

        async def told(request: web.Request) -> web.Response:
            return web.json_response({"seen": self.seen, "aborted": self.aborted})

        app = web.Application(client_max_size=1 << 30)
        app.add_routes([
            web.post("/inference/v1/generate", self.generate), web.get("/health", health), web.get("/told", told),
        ])  # fmt: skip
        return app


if __name__ == "__main__":
    directory, port = Path(sys.argv[1]), int(sys.argv[2])
    named = json.loads((directory / "tokenizer_config.json").read_text())["eos_token"]
    stand_in = StandIn(load_codec(directory), named if isinstance(named, str) else named["content"])
    web.run_app(stand_in.app(), host="127.0.0.1", port=port, handler_cancellation=True, print=None)
