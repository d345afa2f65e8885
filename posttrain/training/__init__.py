"""Training of language models: data to packed batches, losses, optimiser, checkpoints, the loop.

The modules in the order in which a token passes them:

    config      every setting (light: a step's spec imports it)
    spans       which characters of a rendered conversation the model has to produce
    chat        prepared rows to documents: token ids with a mask of the positions with loss
    packing     documents to updates and rows (pure)
    experience  samples with rewards to documents with advantages, those that are left out counted (pure)
    batch       a row as tensors
    attention   attention that stops at a document's boundary
    loss        log-probabilities at the positions with loss only, entropies, a critic's values
    objectives  what they are pushed towards (a package of pure functions)
    selection   which samples are trained on (likewise)
    model       a Hugging Face model made ready: weights in fp32, compute in bf16, LoRA
    strategy    what is done on one process and what over many
    optim       AdamW and the schedule of its learning rate
    learner     one update, and nothing of it where something is not finite
    checkpoints sharded, asynchronous, with digests
    trainer     the loop over updates with evaluation, early stop and resume
    export      the trained model in Hugging Face's layout
    sft         the two steps that are made of these: SFT and cold start
    cold_start  which rows a cold start is made of (pure)
"""
