"""The ladder: four typed levels of one conversation with a model, from what an agent did to what is trained on.

    agentic     Trajectory             turns, tool calls, observations, reasoning, sub-agents, outcome
    chat        ChatRequest, Response  messages and tool schemas of one call
    completion  Completion             text with spans: who wrote it, may it be trained on
    tokens      Tokens                 ids with spans, log-probabilities, policy versions

Functions between neighbours: `climb` (agentic and chat), `posttrain.llmm.tokens` (chat to completion to tokens).
Forms: `json` (JSON) and `arrow` (the `experience` stream).
"""

from posttrain.llmm.ir.agentic import Call, Outcome, Status, Trajectory, Turn
from posttrain.llmm.ir.chat import (
    ChatRequest,
    ChatResponse,
    Choice,
    Citation,
    Failure,
    Format,
    Logprob,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Role,
    Sampling,
    Stop,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
    arguments_object,
    arguments_text,
)
from posttrain.llmm.ir.completion import Completion, Span, tiles
from posttrain.llmm.ir.json import VERSION, from_json, to_json
from posttrain.llmm.ir.origin import Author, Json, Origin, Residual
from posttrain.llmm.ir.tokens import Tokens, loss_mask, policy_versions

__all__ = [
    "VERSION", "Author", "Call", "ChatRequest", "ChatResponse", "Choice", "Citation", "Completion", "Failure",
    "Format", "Json", "Logprob", "Media", "Message", "Opaque", "Origin", "Outcome", "Part", "Reasoning", "Refusal",
    "Residual", "Role", "Sampling", "Span", "Status", "Stop", "Text", "Thinking", "Tokens", "Tool", "ToolCall",
    "ToolChoice", "ToolResult", "Trajectory", "Turn", "Usage", "arguments_object", "arguments_text", "from_json",
    "loss_mask", "policy_versions", "tiles", "to_json",
]  # fmt: skip
