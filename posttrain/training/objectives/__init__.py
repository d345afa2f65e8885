"""Objectives: what a sample's tokens are pushed towards, as pure functions over flat tokens.

Letters: P positions with loss of a micro-batch, S its sequences.

One representation, flat tokens [P] with the index of each token's sequence, is all that there is. It is what the
trainer has: a row of packed documents gives log-probabilities at its positions with loss only, and nothing is padded. A
padded [B, T] with its mask is the same thing after `x_BT[mask_BT]`, with `mask_BT.nonzero()[:, 0]` for the sequences.

Invariants: an objective gives a loss for each token and no mean. `build` adds the tokens up and divides by what the
whole update holds over all micro-batches and ranks (its tokens, its sequences, or its sequences times a constant), so
that neither packing nor the number of ranks changes loss or gradient. A sequence lies in one micro-batch as a
whole, and so do the two of a preference pair: packing never cuts a document, and `build(...).unit` says what goes
together. Advantages are made before, on whole groups, from numbers alone (`advantages`, numpy). What is masked is not
there: a token or sample that is not trained on counts in no numerator and no denominator.

Stated results, for all objectives: a micro-batch without tokens has loss 0 and no gradient of its own. A log-ratio is
bounded to ±20 before exp, and outside of the bound its gradient is 0. A token that both sides give
probability 0 has ratio 1; a log-probability below -100 (that of an impossible token is −inf) counts as -100 where it
is used by itself, without gradient. Exactly at a bound the gradient is that of inside. A group of equal rewards, and a
group of one, has advantages of exactly 0. NaN stays NaN, so that the learner stops.

    kinds        the objectives there are, with their options (light, as is the next: specs of steps import them)
    config       which one runs, and what all of them have
    tokens       what goes in and what comes out
    ratio        bounded log-ratios, and sums over sequences
    clipped      the clipped surrogate that half of them share
    kl           k1, k2, k3
    correction   sampler against trainer: truncated or masked importance weights
    advantages   rewards to advantages (numpy), overlong shaping, GAE
    build        from the configuration to the objective that the learner is given
    cross_entropy grpo dr_grpo dapo gspo cispo rloo reinforce ppo topr dpo     one each
"""
