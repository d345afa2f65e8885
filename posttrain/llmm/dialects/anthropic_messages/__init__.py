"""Anthropic Messages: requests, answers, and their streams.

`system` is a leading message of the role system; a user's message that holds tool results becomes one message for
each result and one for what stands between them, joined. Usage: the vendor's `input_tokens` leaves out what was
read from or written to the cache, the IR's counts it. Source: the types of the `anthropic` package.
"""

from __future__ import annotations

from typing import Final

NAME: Final = "anthropic_messages"
