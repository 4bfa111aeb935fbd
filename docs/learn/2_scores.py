# %% [markdown]
# # 2. Additive and dot scores
#
# The decoder has a state $s$. The encoder left a vector $h_j$ for each word. Attention answers one question: *which of
# the $h_j$ does $s$ need now?* It takes three steps:
#
# 1. a **score** for each word, $e_j = \mathrm{score}(s, h_j)$: any number, larger is better;
# 2. a **softmax** makes weights of them, $\alpha_j = e^{e_j} / \sum_k e^{e_k}$: positive, with sum 1;
# 3. the **context** is the weighted mean, $c = \sum_j \alpha_j h_j$.
#
# Only the first step differs from paper to paper. We do all three by hand, and then with a layer.

# %%
import keras
import matplotlib.pyplot as plt
import numpy as np

import zoo
from zoo import layers

keras.utils.set_random_seed(1)

s = np.array([1.0, 0.5], "float32")
h = np.array([[2.0, 0.0], [0.0, 2.0], [-1.0, -1.0]], "float32")

scores = h @ s  # the dot product of s with each h_j
weights = np.exp(scores) / np.exp(scores).sum()
context = weights @ h
print("scores ", scores)
print("weights", weights.round(3))
print("context", context.round(3))

# %% [markdown]
# The first word points the way $s$ does and gets most of the weight. `zoo.trace` shows the same computation as the
# layer does it, step by step. Compare the numbers.

# %%
zoo.trace(layers.DotAttention(), s, h)

# %% [markdown]
# ## Bahdanau's score: a small network
#
# The first paper on attention (Bahdanau et al. 2015) did not take a dot product. It let a network with one hidden layer
# judge the pair:
#
# $$\mathrm{score}(s, h) = v^\top \tanh(W_1 s + W_2 h + b)$$
#
# $s$ and $h$ may have different sizes, and what "fits" means is learned. Let us compute it from the layer's own weights.

# %%
score = layers.AdditiveScore(units=5)
layer_scores = score(s[None], h)  # [1, 3]: one query, three keys

W1, b = score.query_dense.kernel.numpy(), score.query_dense.bias.numpy()
W2, v = score.key_dense.kernel.numpy(), score.score_dense.kernel.numpy()[:, 0]
by_hand = [v @ np.tanh(W1.T @ s + W2.T @ h_j + b) for h_j in h]
print("layer  ", np.array(layer_scores)[0].round(4))
print("by hand", np.array(by_hand).round(4))

# %% [markdown]
# ## Luong's scores
#
# Soon after, Luong et al. compared simpler ones. All of them are here under the names of the papers.

# %%
query, keys = np.random.default_rng(0).normal(size=(2, 1, 6, 16)).astype("float32")
names = ["dot", "scaled_dot", "general", "concat", "additive", "cosine"]
figure, axes = plt.subplots(1, len(names), figsize=(12, 2.4), layout="constrained")
for axis, name in zip(axes, names, strict=True):
    _, weights = layers.Attention(name)(query, keys, return_attention_scores=True)
    axis.imshow(weights[0], cmap="Greens", vmin=0, vmax=1)
    axis.set(title=name, xticks=[], yticks=[])
plt.show()

# %% [markdown]
# Each picture shows six queries (rows) over six keys (columns), all untrained. Two things to notice:
#
# - `dot` has very dark cells: some queries give nearly all weight to a single key. `scaled_dot` divides by $\sqrt{d}$ and
#   is softer. The [next page but one](4_heads_and_positions.md) explains why that matters.
# - `cosine` is softest: it lies between −1 and 1 before its temperature, whatever the vectors are.
#
# ## What they cost
#
# The additive score runs its network for every pair of a query and a key: a tanh for each hidden unit. `zoo.cost` counts
# multiplications, and functions such as tanh and exp apart.

# %%
for name in ("dot", "general", "additive"):
    layer = layers.Attention(layers.get_score(name))
    layer.build((1, 100, 64), (1, 100, 64))
    cost = zoo.cost(layer, query_length=100)
    print(f"{name:10} {cost.multiplications:>12,} multiplications {cost.others:>10,} functions")

# %% [markdown]
# For a recurrent decoder, which has one query at a time, that does not matter much. For self-attention, where each
# position is compared with every other, it does: this is why the Transformer went back to dot products.
#
# ## Does the score matter for what is learned?
#
# A task where the answer must be found by its *content*: keys are random vectors, the query is a noisy copy of one of
# them, and the wanted output is the value at that key. We train each score for 150 steps.


# %%
def batch(random, size=64, length=8, d=16):
    keys = random.normal(size=(size, length, d))
    place = random.integers(length, size=size)
    query = keys[np.arange(size), place] + 0.5 * random.normal(size=(size, d))
    return [array.astype("float32") for array in (query[:, None], keys)], place


def learning_curve(name):
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    score = layers.get_score(name)
    queries, keys = keras.Input((1, 16)), keras.Input((8, 16))
    logits = keras.layers.Reshape((8,))(score(queries, keys))
    model = keras.Model([queries, keys], logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss=loss)
    step = model.train_on_batch if model.trainable_weights else model.test_on_batch
    return [float(step(*batch(random))) for _ in range(150)]


for name in ("dot", "general", "additive"):
    curve = np.array(learning_curve(name))
    plt.plot(np.convolve(curve, np.ones(10) / 10, "valid"), label=name)
plt.axhline(np.log(8), color="gray", linestyle=":", label="guessing")
plt.xlabel("step")
plt.ylabel("loss, mean of ten steps")
plt.legend()
plt.show()

# %% [markdown]
# `dot` needs no training here, and has no weights to train: it finds similar vectors. `general` begins with
# random weights and must find out that "similar" is the right idea. `additive` must build it from a hidden layer, and is
# slowest. On a task where *similar* is the wrong idea the order turns round.
#
# ## Now change this
#
# - Let the query be a noisy copy of the key *times −1*. Which scores can still learn it?
# - Give queries 8 features and keys 16 (let the query be the first half). `dot` raises an
#   error. Read its message; which scores take them?
# - Set `units=64` in `layers.AdditiveScore(units=64)` and use the object in place of its name. Is it faster?
