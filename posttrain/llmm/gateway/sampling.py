"""A request of the IR as vLLM's sampling parameters. Pure.

Invariants: what a client does not say is sent as vLLM's neutral value, so that no default of a server changes the
distribution that is trained on; log-probabilities of the sampled tokens are always asked for.
"""

from __future__ import annotations

from typing import Any

import msgspec

from posttrain.errors import UserError
from posttrain.llmm import ir
from posttrain.llmm.gateway.errors import GatewayError
from posttrain.llmm.tokens.messages import schemas
from posttrain.llmm.tokens.model import ChatModel
from posttrain.llmm.tokens.parsers import forced

JSON = dict[str, Any]
MAX_SAMPLES, MAX_TOP_LOGPROBS = 128, 20


def sampling_parameters(request: ir.ChatRequest, model: ChatModel, prompt_tokens: int, *, thinking: bool) -> JSON:
    """Raises GatewayError (400, 422) for what cannot be asked of the engine."""
    asked = request.sampling
    room = model.context_length - prompt_tokens if model.context_length else None
    if room is not None and room < 1:
        message = f"the prompt has {prompt_tokens} tokens and the model's context is {model.context_length}"
        raise GatewayError(400, message, code="context_length_exceeded", param="messages")
    samples = 1 if asked.n is None else asked.n
    if not 1 <= samples <= MAX_SAMPLES:
        raise GatewayError(422, f"n must be 1 to {MAX_SAMPLES}", param="n")
    if asked.max_tokens is not None and asked.max_tokens < 1:
        raise GatewayError(422, "must be at least 1", param="max_tokens")
    limits = [limit for limit in (asked.max_tokens, room) if limit is not None]
    made: JSON = {
        "n": samples,
        "temperature": 1.0 if asked.temperature is None else asked.temperature,
        "top_p": 1.0 if asked.top_p is None else asked.top_p,
        "top_k": int(asked.top_k or 0),
        "presence_penalty": asked.presence_penalty or 0.0,
        "frequency_penalty": asked.frequency_penalty or 0.0,
        "repetition_penalty": 1.0,
        "logprobs": min(asked.top_logprobs or 0, MAX_TOP_LOGPROBS),
        "skip_special_tokens": False,
        "detokenize": bool(asked.stop),  # the engine looks for stop texts, nothing else of its text is used
    }
    if limits:
        made["max_tokens"] = min(limits)
    if asked.seed is not None:
        made["seed"] = asked.seed
    if asked.stop:
        made["stop"] = list(asked.stop)
    if structure := structured_outputs(request, model, thinking=thinking):
        made["structured_outputs"] = structure
    return made


def structured_outputs(request: ir.ChatRequest, model: ChatModel, *, thinking: bool) -> JSON | None:
    """What the answer must look like: calls that the client forces, or the form that it asks for."""
    choice = request.tool_choice
    if choice is not None and choice.mode in ("required", "named"):
        return _behind_thoughts(_calls(request, choice, model), model, thinking)
    form = request.format
    if form is None or form.type == "text":
        return None
    schema = form.schema if form.type == "schema" else {"type": "object"}
    if not isinstance(schema, dict):
        raise GatewayError(422, "the form of the answer needs a JSON schema", param="response_format")
    if not thinking:
        return {"json": schema} if form.type == "schema" else {"json_object": True}
    return _behind_thoughts(forced.document(schema), model, thinking)


def _calls(request: ir.ChatRequest, choice: ir.ToolChoice, model: ChatModel) -> JSON:
    offered = schemas(request)
    names = choice.names or tuple(offered)
    missing = [name for name in names if name not in offered]
    if missing or not names:
        raise GatewayError(422, f"no such tool is offered: {', '.join(missing) or 'none at all'}", param="tool_choice")
    if model.format.forced is None:
        message = f"a call cannot be forced upon a model that writes calls as {model.format.name} does"
        raise GatewayError(422, message, param="tool_choice")
    several = choice.parallel is not False and choice.mode == "required"
    try:
        return forced.calls(model.format.forced, {name: offered[name] for name in names}, several=several)
    except ValueError as problem:
        raise GatewayError(422, str(problem), param="tools") from None


def _behind_thoughts(inner: JSON, model: ChatModel, thinking: bool) -> JSON:
    """A prompt that has opened the reasoning: anything up to its end, then the form."""
    if thinking:
        end = model.format.reasoning[0].close[0]
        thought = {"type": "tag", "begin": "", "content": {"type": "any_text"}, "end": end}
        inner = {"type": "sequence", "elements": [thought, {"type": "const_string", "value": "\n\n"}, inner]}
    return {"structural_tag": msgspec.json.encode({"type": "structural_tag", "format": inner}).decode()}


def as_refusal(problem: UserError) -> GatewayError:
    """A request that the model or its template cannot take."""
    return GatewayError(422, str(problem), param=problem.field)
