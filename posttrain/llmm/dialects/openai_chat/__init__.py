"""OpenAI Chat Completions: requests, answers, and their streams.

A message of the wire is a message of the IR; tool messages that follow each other are joined. An assistant's parts
stand in the order reasoning, text, refusal, calls, which is all that this dialect can say of their order.
Reasoning has no field of the vendor's: `reasoning_content` and `reasoning` are those of vLLM, SGLang and DeepSeek,
`top_k` is vLLM's. Source: the types of the `openai` package.
"""

from __future__ import annotations

from typing import Final

NAME: Final = "openai_chat"
