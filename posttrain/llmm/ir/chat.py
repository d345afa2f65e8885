"""Level `chat`: one call of a model. Messages and tool schemas, as a chat template takes them, and the answer.

Invariants: a message is said by one role; a tool's results stand in messages of the role `tool`, calls and
reasoning in messages of the role `assistant`; the order of parts is the order in which they were said. None
means that it was not said, and is never sent. Elements hold nothing that could hold them, so that the garbage
collector need not look at them (`gc=False`). A field that only one vendor has stays in the residual.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from posttrain.llmm.ir.origin import Json, Origin, Residual

Role = Literal["system", "developer", "user", "assistant", "tool"]


class _Element(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag_field="kind", tag=str.lower
):
    """What every element of a message has."""

    residual: Residual | None = None
    origin: Origin | None = None


class Citation(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """A source of a piece of text. `start` and `end` are characters of the text that is supported."""

    url: str | None = None
    title: str | None = None
    quote: str | None = None
    start: int | None = None
    end: int | None = None
    residual: Residual | None = None


class Text(_Element, frozen=True, gc=False):
    """Text. `signature` is a vendor's seal on it, opaque, of worth to that vendor alone."""

    text: str
    citations: tuple[Citation, ...] | None = None
    signature: str | None = None


class Reasoning(_Element, frozen=True, gc=False):
    """What the model thought. `text` None and `encrypted` set: only the vendor can read it (redacted or
    encrypted reasoning). `summary` is what a vendor shows in its place. `signature` as in `Text`."""

    text: str | None = None
    summary: tuple[str, ...] | None = None
    encrypted: str | None = None
    signature: str | None = None


class Refusal(_Element, frozen=True, gc=False):
    """The model declines, in its own words."""

    text: str


class Media(_Element, frozen=True, gc=False):
    """An image, a sound, a video or a document: by value (`data`, base64), by `url` or by a vendor's `file` id."""

    medium: Literal["image", "audio", "video", "document"]
    type: str | None = None  # MIME
    data: str | None = None
    url: str | None = None
    file: str | None = None
    name: str | None = None
    detail: str | None = None
    signature: str | None = None


class ToolCall(_Element, frozen=True, gc=False):
    """A call that the model asks for. `arguments` is the JSON text as the model wrote it, or the object where the
    vendor gives one (use `arguments_object`, `arguments_text`); for `free` calls it is text of any form.
    `id` is None where the vendor gives calls no ids: then results are matched by name and order."""

    name: str
    arguments: str | Json
    id: str | None = None
    free: bool = False
    signature: str | None = None


class ToolResult(_Element, frozen=True, gc=False):
    """What a tool answered to the call `call`. `content` holds text and media; `value` is the object in its place
    where the vendor gives one; `error` True means that the call failed."""

    call: str | None = None
    name: str | None = None
    content: tuple[Text | Media | Opaque, ...] = ()
    value: Json | None = None
    error: bool | None = None
    free: bool = False


class Opaque(_Element, frozen=True, gc=False):
    """A part of `type` that the IR has no word for; all of it is in the residual of its dialect."""

    type: str


Part = Text | Reasoning | Refusal | Media | ToolCall | ToolResult | Opaque


class Message(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """`joined`: on the wire it is of one piece with the message before it (a vendor whose user messages hold tool
    results as well, say); `name` is that of the
    participant."""

    role: Role
    parts: tuple[Part, ...] = ()
    name: str | None = None
    joined: bool = False
    residual: Residual | None = None
    origin: Origin | None = None


class Tool(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """A function that the model may call; `parameters` is its JSON schema. `free`: called with text of any form.
    `type`: a tool that the vendor runs or defines, which has no schema here; all else is in the residual."""

    name: str | None = None
    description: str | None = None
    parameters: Json | None = None
    strict: bool | None = None
    free: bool = False
    type: str | None = None
    residual: Residual | None = None


class ToolChoice(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """`named` with its `names` forces those; `auto` and `required` with names allow those alone."""

    mode: Literal["auto", "none", "required", "named"] | None = None
    names: tuple[str, ...] | None = None
    parallel: bool | None = None
    residual: Residual | None = None


class Format(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """The form asked of the answer's text: any, a JSON object, or JSON of a schema."""

    type: Literal["text", "json", "schema"]
    schema: Json | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None
    residual: Residual | None = None


class Thinking(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """How much the model shall think: an `effort` in words, a `budget` in tokens, or neither."""

    enabled: bool | None = None
    effort: str | None = None
    budget: int | None = None
    summary: str | None = None
    residual: Residual | None = None


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """`logprobs` asks for those of the sampled tokens, `top_logprobs` for so many others at each place."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


class ChatRequest(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag_field="kind", tag="chat_request"
):
    """`previous` is the id of the response whose conversation this one goes on with."""

    messages: tuple[Message, ...]
    model: str | None = None
    tools: tuple[Tool, ...] | None = None
    tool_choice: ToolChoice | None = None
    sampling: Sampling = Sampling()
    format: Format | None = None
    thinking: Thinking | None = None
    stream: bool | None = None
    previous: str | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    residual: Residual | None = None


Stop = Literal["end", "length", "tool_calls", "stop_sequence", "filter", "refusal", "pause", "error", "other"]


class Logprob(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """One token with its log-probability; `top` holds the likeliest at its place."""

    token: str
    logprob: float | None = None
    id: int | None = None
    bytes: tuple[int, ...] | None = None
    top: tuple[Logprob, ...] | None = None
    residual: Residual | None = None


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """Tokens. `input` counts those read from a cache where the vendor's own count does (see each dialect);
    `cached` were read from it, `cache_written` written to it, `reasoning` are of the `output`."""

    input: int | None = None
    output: int | None = None
    total: int | None = None
    cached: int | None = None
    cache_written: int | None = None
    reasoning: int | None = None
    residual: Residual | None = None


class Choice(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """One sample. `stop` says why it ended, None while it has not; `stop_sequence` which text ended it."""

    message: Message
    index: int = 0
    stop: Stop | None = None
    stop_sequence: str | None = None
    logprobs: tuple[Logprob, ...] | None = None
    residual: Residual | None = None


class Failure(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """An error in place of an answer, or of the rest of it."""

    message: str
    type: str | None = None
    code: str | None = None
    residual: Residual | None = None


class ChatResponse(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="kind", tag="chat_response"
):
    """`created` is in seconds since 1970."""

    choices: tuple[Choice, ...]
    id: str | None = None
    model: str | None = None
    created: float | None = None
    usage: Usage | None = None
    error: Failure | None = None
    residual: Residual | None = None


_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode


def arguments_text(call: ToolCall) -> str:
    """The arguments as text: the model's own where it is known."""
    if isinstance(call.arguments, str):
        return call.arguments
    return _encode(call.arguments).decode()


def arguments_object(call: ToolCall) -> Any:
    """The arguments as a JSON value. Raises ValueError where the model wrote no JSON."""
    given = call.arguments
    if not isinstance(given, str):
        return given
    try:
        return _decode(given) if given and not given.isspace() else {}
    except msgspec.DecodeError as problem:
        raise ValueError(f"arguments of {call.name} are no JSON: {problem}") from None
