"""OpenAI Responses: requests, answers, and their streams.

An item of the wire is a message or a part: what the assistant made (messages, calls, reasoning) is gathered to one
message of the IR until someone else speaks, as a chat template has it; where an item began is a note on its first
part. `instructions` is a leading message of the role system. An item of a tool that the vendor runs is `Opaque`.
Source: the types of the `openai` package.
"""

from __future__ import annotations

from typing import Final

NAME: Final = "openai_responses"
