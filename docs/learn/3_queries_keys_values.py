# %% [markdown]
# # 3. Queries, keys, values and masks
#
# On the last page the vectors $h_j$ did two jobs: they were compared with $s$, and they were averaged. One vector need
# not do both. Give each job a vector of its own, and every vector a name:
#
# | | question it answers | in a library |
# |---|---|---|
# | **query** $q$ | what am I looking for? | what you type |
# | **key** $k$ | what can I be found by? | the words on the card |
# | **value** $v$ | what do I contribute? | the book |
#
# With all queries as the rows of a matrix $Q$, and keys and values likewise, attention is one line:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V$$
#
# ## A dictionary that answers almost-questions

# %%
import matplotlib.pyplot as plt
import numpy as np

import zoo
from zoo import layers

keys = np.array([[1, 0], [0, 1], [-1, 0]], "float32") * 4
values = np.array([[10.0], [20.0], [30.0]], "float32")
questions = np.array([[1, 0], [0, 1], [0.7, 0.7], [0, 0]], "float32") * 4

layer = layers.ScaledDotProductAttention()
answers, weights = layer(questions[None], values[None], keys[None], return_attention_scores=True)
for question, answer, row in zip(questions, answers[0], weights[0], strict=True):
    print(f"{question} -> {float(answer[0]):5.1f}   weights {np.array(row).round(2)}")

# %% [markdown]
# Exact questions get exact answers. The third question lies between two keys, and its answer between their values. The
# last one asks for nothing and gets the mean of everything. A Python dictionary would have raised `KeyError`; attention
# never does, and that is what makes it trainable. (Note the order of arguments: query, **value**, key, as in Keras.)
#
# ## Self-attention: one text, three views
#
# If queries, keys and values all come from the same text, $Q = X W_q$, $K = X W_k$, $V = X W_v$, every word attends
# to all words. The classifier below has one such layer with one head. It was trained to tell the meaning of ambiguous words.

# %%
run = zoo.load("preset:senses_self_attention_classifier")
texts = ["I ate a juicy apple after lunch.", "I updated my Apple phone to the latest version."]
for text, answer in zip(texts, run.classify(texts), strict=True):
    print(f"{answer.label:15} {answer.probabilities.max():.3f}  {text}")

# %%
figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
for axis, (tokens, weights) in zip(axes, run.attention(texts), strict=True):
    axis.imshow(weights[0, 0], cmap="Greens", vmin=0, vmax=1)
    axis.set_xticks(range(len(tokens)), tokens, rotation=60, ha="right")
    axis.set_yticks(range(len(tokens)), tokens)
    axis.set(xlabel="key", ylabel="query")
plt.show()

# %% [markdown]
# Find the row of "apple" in both pictures, and see which words it collects. The word enters with *one* embedding and
# leaves with *two* different vectors:

# %%
print(run.compare("apple", texts + ["She ate a sweet apple."]))

# %% [markdown]
# ## Masks: what may be attended to
#
# **Padding.** Texts of a batch have different lengths; the short ones are padded. No query may attend to the padding. A
# mask is boolean, and **True means: may be attended to**. We pad with enormous numbers to be sure.

# %%
x = np.random.default_rng(0).normal(size=(1, 4, 8)).astype("float32")
padded = np.concatenate([x, np.full((1, 2, 8), 1e9, "float32")], axis=1)
mask = np.array([[True] * 4 + [False] * 2])

alone = layer(x, x)
in_a_batch = layer(x, padded, value_mask=mask)
print("largest difference:", float(np.abs(alone - in_a_batch).max()))

# %% [markdown]
# **The future.** A model that learns to continue a text must not attend to the continuation. With the causal mask,
# position $t$ attends to itself and to earlier positions.

# %%
_, weights = layer(x, x, use_causal_mask=True, return_attention_scores=True)
print(np.array(weights[0]).round(2))

# %% [markdown]
# Masked scores become $-\infty$ *before* the softmax, so each row still sums to 1. Setting weights to zero *after* it
# would not do: the hidden words would have taken part in the sum.
#
# **No key left.** What if everything is masked? A softmax over nothing is 0/0. Here such a query gets exact zeros:

# %%
nothing = layer(x, x, value_mask=np.zeros((1, 4), bool))
print("all hidden:", np.unique(nothing))

# %% [markdown]
# Not every library does that; some return the mean of what was hidden. [The mask contract](../understand/mask-contract.md)
# lists what all layers here promise.
#
# ## Now change this
#
# - Move the third question from `[0.7, 0.7]` towards `[1, 0]` in ten steps and plot the answer. What if you multiply all
#   keys by 10, and by 0.1?
# - Ask `run.compare` about "bank", "mouse" or "date" in sentences of your own.
# - Give the layer a float mask of zeros and ones. Read the message: in some libraries it would have been added to the
#   scores, in others read as True and False. Here it is an error.
# - Use a `keras.layers.Embedding(..., mask_zero=True)` before the layer. Who passes the mask on?
