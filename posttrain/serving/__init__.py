"""Serving: a model behind vLLM's OpenAI-compatible interface, and its verification through that interface."""
