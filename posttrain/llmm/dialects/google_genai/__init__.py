"""Google GenAI, `generateContent`: requests, answers, and their streams.

`systemInstruction` is a leading message of the role system. Function calls and responses may come without ids: they
stay without, and are matched by name and order. A function's response `{"output": text}` or `{"error": text}` is a
result of text; any other object is a result's `value`. Usage: the vendor counts thoughts apart from the answer, the
IR as a part of it. Keys are written in camel case, as the SDK writes them. Source: the types of `google-genai`.
"""

from __future__ import annotations

from typing import Final

NAME: Final = "google_genai"
