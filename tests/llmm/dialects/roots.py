"""The roots of each dialect: what is sent, what is answered, what is streamed, as shapes of the SDK's types."""

from __future__ import annotations

from typing import Any

from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types import message_create_params as anthropic_create
from google.genai import types as google
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat import completion_create_params as chat_create
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses import response_create_params as responses_create
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from tests.llmm.dialects.sdk import Object, alternatives, shape_of


class GenerateContentBody(BaseModel):
    """What the SDK sends to `:generateContent`; its types have no class for the whole of it."""

    model_config = ConfigDict(alias_generator=to_camel)
    contents: list[google.Content]
    system_instruction: google.Content | None = None
    tools: list[google.Tool] | None = None
    tool_config: google.ToolConfig | None = None
    safety_settings: list[google.SafetySetting] | None = None
    generation_config: google.GenerationConfig | None = None
    cached_content: str | None = None
    labels: dict[str, str] | None = None
    model_armor_config: google.ModelArmorConfig | None = None
    service_tier: google.ServiceTier | None = None
    store: bool | None = None


REQUESTS: dict[str, Any] = {
    "openai_chat": shape_of(chat_create.CompletionCreateParamsNonStreaming),
    "openai_responses": shape_of(responses_create.ResponseCreateParamsNonStreaming),
    "anthropic_messages": shape_of(anthropic_create.MessageCreateParamsNonStreaming),
    "google_genai": shape_of(GenerateContentBody),
}
RESPONSES: dict[str, Any] = {
    "openai_chat": shape_of(ChatCompletion),
    "openai_responses": shape_of(Response),
    "anthropic_messages": shape_of(Message),
    "google_genai": shape_of(google.GenerateContentResponse),
}
EVENTS: dict[str, list[Object]] = {
    "openai_chat": [shape_of(ChatCompletionChunk)],
    "openai_responses": alternatives(ResponseStreamEvent),
    "anthropic_messages": alternatives(RawMessageStreamEvent),
    "google_genai": [shape_of(google.GenerateContentResponse)],
}
