"""LLMM: vendors' interfaces as dialects of one typed IR, lowered step by step to tokens that can be trained on."""
