# %% [markdown]
# # 1. Why a fixed vector fails
#
# Before attention, a translator read the whole sentence into one vector and wrote the translation from that vector
# alone. The vector had the same size for three words and for thirty. This page asks how much fits into it.
#
# ## A memory that we can calculate
#
# Take the simplest recurrent network, a linear one. Each word has a random vector $e$ of size $d$, and $R$ is a random
# rotation:
#
# $$m_t = R\, m_{t-1} + e(x_t)$$
#
# After $n$ words, $m_n$ holds all of them, each turned by another power of $R$. Nothing is forgotten on purpose, and
# rotations lose nothing. To read word $i$, turn back and look for the most similar word vector. A trained network cannot
# do much better with so simple a memory.

# %%
import keras
import matplotlib.pyplot as plt
import numpy as np

import zoo
from zoo import layers

keras.utils.set_random_seed(0)
random = np.random.default_rng(0)


def share_recalled(d, length, words=500, trials=20):
    """Returns the share of words that can be read back from one vector of size d."""
    embeddings = random.normal(size=(words, d)) / np.sqrt(d)
    rotation, _ = np.linalg.qr(random.normal(size=(d, d)))
    right = 0
    for _ in range(trials):
        sentence = random.integers(words, size=length)
        memory = np.zeros(d)
        for word in sentence:
            memory = rotation @ memory + embeddings[word]
        for word in sentence[::-1]:  # the last word was turned least
            right += np.argmax(embeddings @ memory) == word
            memory = rotation.T @ memory
    return right / (trials * length)


lengths = [2, 4, 8, 16, 32, 64]
for d in (64, 128, 256):
    plt.plot(lengths, [share_recalled(d, length) for length in lengths], marker="o", label=f"d = {d}")
plt.xscale("log", base=2)
plt.xlabel("words in the sentence")
plt.ylabel("words that can be read back")
plt.legend()
plt.show()

# %% [markdown]
# Short sentences come back whole. Then each curve falls: the words disturb one another, because they share one place.
# Four times the size buys roughly four times the length, and there is always a longer sentence.
#
# ## What is learned about early words
#
# A trained network has a second problem. To learn what to keep of word 1, the error at the end must reach it through
# every step between. Let us measure how much of the last state of a GRU depends on each input, and set beside it the
# output of attention, whose query is the last word.

# %%
import tensorflow as tf

x = random.normal(size=(1, 40, 32)).astype("float32")
gru, attention = keras.layers.GRU(32), layers.SelfAttention(units=32)


def influence(last_output):
    """Returns how strongly the last output depends on each input, relative to the strongest."""
    inputs = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        output = tf.reduce_sum(last_output(inputs) ** 2)
    gradient = np.linalg.norm(tape.gradient(output, inputs)[0], axis=-1)
    return gradient[:-1] / gradient[:-1].max()  # without the last input, which is the query


plt.semilogy(influence(gru), label="GRU")
plt.semilogy(influence(lambda inputs: attention(inputs)[:, -1]), label="attention")
plt.xlabel("position of the input, of 40")
plt.ylabel("influence on the last output")
plt.legend()
plt.show()

# %% [markdown]
# For the GRU influence falls exponentially with distance. For attention it does not depend on distance at all: every
# word is one step away. That number has a name, the *path length*, and `zoo.cost` counts it.

# %%
gru_cost = zoo.cost(gru, query_length=40)
attention_cost = zoo.cost(attention, query_length=40)
print(f"GRU:       path {gru_cost.path_length}, steps one after another {gru_cost.sequential_steps}")
print(f"attention: path {attention_cost.path_length}, steps one after another {attention_cost.sequential_steps}")

# %% [markdown]
# ## Two networks learn to read dates
#
# So much for theory. `rnn_encdec` (Cho et al. 2014) is the translator with one vector; `rnnsearch` (Bahdanau et al. 2015)
# is the same with attention. Both learn, for 160 small steps, to write dates from 32 languages as ISO 8601.

# %%
import json
from pathlib import Path

from training import train

settings = ["training.max_steps=160", "training.eval_every=40", "training.batch_tokens=1024", "model.units=64"]
settings += ["model.embedding_dim=32", "training.learning_rate=0.005", "training.warmup_steps=20"]
for name in ("rnn_encdec", "rnnsearch"):
    workdir = Path("runs/learn") / name
    resume = ["--resume"] if (workdir / "config.json").exists() else []
    train.main(["--model", name, "--data", "dates", "--workdir", str(workdir), "--set", *settings, *resume])
    records = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    points = {record["step"]: record["val_loss"] for record in records if "val_loss" in record}
    plt.plot(list(points), list(points.values()), marker="o", label=name)
plt.xlabel("step")
plt.ylabel("validation loss, nats per token")
plt.legend()
plt.show()

# %% [markdown]
# The same data, the same steps, the same sizes. The model that may look back is soon far ahead.
#
# ## The way out
#
# Keep *all* states of the encoder, and let the decoder choose for each word it writes. Here is a trained model that
# does. It reads a date and writes it as ISO 8601; each row shows the weights of the source for that character.

# %%
run = zoo.load("preset:dates_rnnsearch")
print(run.translate(["the 24th of March 1931", "24 марта 1931 г."]))

((source, target, weights),) = run.attention(["24 March 1931"])
plt.imshow(weights[0, 0], cmap="Greens", vmin=0, vmax=1)
plt.xticks(range(len(source)), source)
plt.yticks(range(len(target)), target)
plt.xlabel("reads")
plt.ylabel("writes")
plt.show()

# %% [markdown]
# And this is how the two architectures differ. On the left the only way from source to target is one vector; on the
# right there is attention between them.

# %%
zoo.draw_model("rnn_encdec")

# %%
zoo.draw_model("rnnsearch")

# %% [markdown]
# ## Now change this
#
# - Give `share_recalled` a vocabulary of 50 words, or of 5,000. Does the size of the vocabulary matter as much as $d$?
# - Replace `keras.layers.GRU(32)` by `keras.layers.SimpleRNN(32)` and by `keras.layers.LSTM(32)`. Which one remembers
#   best before it has learned anything?
# - Train both models and compare them on long dates (a few minutes each):
#   `python -m training.train --model rnn_encdec --data dates --workdir runs/without`, the same with `rnnsearch`, then
#   `python -m training.evaluate runs/without --data dates --split test --by length`.
