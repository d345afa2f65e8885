"""Tiny configurations of the model classes that inference ranks serve, by the name of their configuration.

Made for vLLM on a CPU, whose attention has heads of 32 and more, and for two ranks. Sizes are small and, where they can
be, unlike each other. Of the classes with vision, one that vLLM can make without torchvision, which is not among what
this project installs for CPUs.
"""

from __future__ import annotations

from typing import Any

DENSE: dict[str, Any] = dict(
    hidden_size=128, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    head_dim=32, vocab_size=504, max_position_embeddings=256, tie_word_embeddings=False,
    bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
MOE = DENSE | dict(
    num_experts=4, num_local_experts=4, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2,
    moe_intermediate_size=64, first_k_dense_replace=1, decoder_sparse_step=1, mlp_only_layers=[],
    n_group=1, topk_group=1,
)  # fmt: skip
MLA = MOE | dict(
    q_lora_rank=48, kv_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=32, v_head_dim=32, num_key_value_heads=4,
)  # fmt: skip
VISION: dict[str, Any] = dict(
    hidden_size=64, intermediate_size=80, num_hidden_layers=2, num_attention_heads=2, image_size=56, patch_size=14,
)  # fmt: skip

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": DENSE | dict(num_key_value_heads=1, vocab_size=503),  # one head for two ranks; a vocabulary that is padded
    "qwen2": DENSE | dict(tie_word_embeddings=True),
    "qwen3": DENSE,
    "qwen3_moe": MOE,
    "mistral": DENSE,
    "mixtral": MOE,
    "gemma": DENSE | dict(tie_word_embeddings=True),
    "gemma2": DENSE | dict(tie_word_embeddings=True, query_pre_attn_scalar=32),
    "gemma3_text": DENSE | dict(tie_word_embeddings=True, query_pre_attn_scalar=32),
    "phi": DENSE | dict(num_key_value_heads=4),
    "phi3": DENSE,
    "deepseek_v2": MLA | dict(topk_method="greedy"),
    "deepseek_v3": MLA | dict(topk_method="noaux_tc"),
    "gpt_oss": MOE | dict(intermediate_size=64, layer_types=["sliding_attention", "full_attention"], sliding_window=32),
    "glm": DENSE,
    "glm4": DENSE,
    "glm4_moe": MOE,
    "olmo2": DENSE,
    "gpt2": dict(vocab_size=504, n_positions=256, n_embd=128, n_layer=2, n_head=4),
    "gpt_neox": DENSE,
    "bloom": dict(vocab_size=504, hidden_size=128, n_layer=2, n_head=4),
    "idefics3": dict(
        text_config=DENSE | dict(model_type="llama"), vision_config=VISION, scale_factor=2, image_token_id=503
    ),
}
