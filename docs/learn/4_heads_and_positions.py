# %% [markdown]
# # 4. Heads and positions
#
# Two things are missing from self-attention. A softmax has one peak, but a word may need two places. And
# attention does not know where anything stands. This page adds both.
#
# ## A bag of words
#
# Turn a text round, and the outputs of self-attention are the same, turned round. For attention *dog bites man* and
# *man bites dog* are one text.

# %%
import keras
import matplotlib.pyplot as plt
import numpy as np

import zoo
from zoo import layers

keras.utils.set_random_seed(0)
x = np.random.default_rng(0).normal(size=(1, 5, 16)).astype("float32")
layer = layers.MultiHeadAttention(num_heads=2, key_dim=8)
forwards, backwards = np.array(layer(x, x)), np.array(layer(x[:, ::-1], x[:, ::-1]))
print("the same, turned round:", np.allclose(forwards, backwards[:, ::-1], atol=1e-6))

# %% [markdown]
# ## Telling places apart
#
# The Transformer *adds* to each word a vector that depends on its place alone. Each pair of features is the hand of a
# clock, and every clock runs at another speed:
#
# $$P_{p,2i} = \sin(p\,\omega_i), \qquad P_{p,2i+1} = \cos(p\,\omega_i), \qquad \omega_i = 10000^{-2i/d}$$

# %%
zoo.draw_positions("sinusoidal", length=50, dim=64)

# %% [markdown]
# Fast clocks on the left tell neighbours apart, slow ones on the right tell the beginning from the end. The dot product
# of two such vectors depends on their distance only, which is why they are useful in a score:

# %%
P = np.array(layers.SinusoidalPositions()(np.zeros((1, 60, 64), "float32")))[0]
for place in (10, 30, 50):
    plt.plot(P @ P[place], label=f"p = {place}")
plt.xlabel("other place")
plt.ylabel("dot product")
plt.legend()
plt.show()

# %% [markdown]
# There are other ways: learn the vectors, rotate queries and keys (RoPE), or subtract from the score what grows with the
# distance (ALiBi). They are exchangeable here:

# %%
choices = {
    "none": None,
    "rotary": layers.RotaryPositions(),
    "ALiBi": layers.ALiBiPositions(),
}
same = np.tile(x[:, :1], (1, 16, 1))  # sixteen times the same word: only the places differ
figure, axes = plt.subplots(1, len(choices), figsize=(10, 3.2), layout="constrained")
for axis, (name, positions) in zip(axes, choices.items(), strict=True):
    keras.utils.set_random_seed(0)
    attention = layers.MultiHeadAttention(num_heads=2, key_dim=8, positions=positions)
    _, weights = attention(same, same, return_attention_scores=True)
    axis.imshow(weights[0, 0], cmap="Greens", vmin=0)
    axis.set(title=name, xlabel="key", ylabel="query")
plt.show()

# %% [markdown]
# Without positions every place looks the same. Rotary positions and ALiBi draw diagonals: what counts is the distance.
#
# ## Several heads
#
# With $N$ heads, each of size $d_k$, attention is done $N$ times beside one another, on different projections of the
# same vectors; the results are joined and mixed by $W_o$:
#
# $$\mathrm{concat}(\mathrm{head}_1, \dots, \mathrm{head}_N)\, W_o$$
#
# It costs no more than one large head, because each is $N$ times smaller:

# %%
for heads, key_dim in ((1, 512), (8, 64)):
    layer = layers.MultiHeadAttention(num_heads=heads, key_dim=key_dim, use_bias=False)
    layer.build((1, 50, 512), (1, 50, 512))
    cost = zoo.cost(layer, query_length=50)
    print(
        f"{heads} heads of {key_dim:3}: {cost['query'].multiplications:,} for Q, {cost['raw_scores'].multiplications:,} "
        f"for the scores, {cost.weights:,} weights"
    )

# %% [markdown]
# What do heads attend to? Here are those of a small language model that learned to add. The text is read from left to
# right, so everything above the diagonal is hidden.

# %%
run = zoo.load("preset:sums_causal_lm_tiny")
print(run.generate(["17+25=", "80+19="]))
((tokens, weights),) = run.attention(["17+25=42"], kind="decoder")
layers_, heads = weights.shape[:2]
figure, axes = plt.subplots(layers_, heads, figsize=(2.1 * heads, 2.1 * layers_), layout="constrained", squeeze=False)
for (layer_number, head), axis in np.ndenumerate(axes):
    axis.imshow(weights[layer_number, head], cmap="Greens", vmin=0, vmax=1)
    axis.set_title(f"layer {layer_number}, head {head}", fontsize=8)
    axis.set_xticks(range(len(tokens)), tokens, fontsize=6)
    axis.set_yticks(range(len(tokens)), tokens, fontsize=6)
plt.show()

# %% [markdown]
# Some heads attend to one neighbour, some to the same place in the other number, some to everything. Nothing in the loss
# requires them to share the work.
#
# ## Why divide by √d?
#
# If the features of $q$ and $k$ are independent with variance 1, their dot product has variance $d$. At $d = 1024$ scores
# of ±32 are common, the softmax puts everything on one key, and its gradient vanishes.

# %%
random = np.random.default_rng(0)
sizes = [4, 16, 64, 256, 1024]
for scaled in (False, True):
    largest = []
    for d in sizes:
        q, k = random.normal(size=(200, d)), random.normal(size=(200, 16, d))
        scores = np.einsum("bd,bsd->bs", q, k) / (np.sqrt(d) if scaled else 1)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        largest.append((weights / weights.sum(axis=1, keepdims=True)).max(axis=1).mean())
    plt.semilogx(sizes, largest, marker="o", label="scaled" if scaled else "not scaled")
plt.xlabel("d")
plt.ylabel("largest of 16 weights, mean")
plt.legend()
plt.show()

# %% [markdown]
# ## Now change this
#
# - Draw `zoo.draw_positions("rotary", length=50, dim=64)` and `"learned"`. Why is the last one noise?
# - Give the model longer sums than it has seen, such as `run.generate(["117+25="])`. Positions it never saw are part of
#   the reason why it fails.
# - In the picture of ALiBi, try 8 heads and draw the first and the last. What is different?
# - Train `python -m training.train --model self_attention_classifier --data senses:twins --workdir runs/order --set
#   model.positions=none`: half of the answers are right, because the two sentences of a pair have the same words.
