"""What can stand in the place of self-attention, and which options suit it."""

# Softmaxes of everything, in another way.
VARIANTS = ("talking_heads", "differential", "latent")
HALVED = ("differential", "latent")
# They weigh near positions, and compare none.
CONVOLUTIONS = ("lightweight_conv", "dynamic_conv")
SELF_ATTENTIONS = ("full", "local", "block_local", *VARIANTS, *CONVOLUTIONS, "linear", "performer")
# They see what is before a position alone, by means of one size: for language models and decoders.
MEANS = ("average", "ssru")
CAUSAL_SELF_ATTENTIONS = ("retention", "gated_linear", "delta_rule", *MEANS)
# They have gates of their own.
WITH_GATES = ("retention", "gated_linear")
# They have sums in place of weights: nothing to score, to drop or to add a bias to.
WITHOUT_SCORES = ("linear", "performer", *CONVOLUTIONS, *CAUSAL_SELF_ATTENTIONS)
# They have no heads of queries and keys, to normalise, to rotate, to size or to gate.
WITHOUT_HEADS = (*CONVOLUTIONS, *MEANS)
WITH_VISIBILITY = ("full", *VARIANTS)

SELF_ATTENTION_OPTIONS = ("self_attention", "decoder_self_attention")
