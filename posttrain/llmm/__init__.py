"""LLMM: every vendor's interface as a dialect of one typed IR, lowered step by step to tokens that can be trained on."""
