# %% [markdown]
# # 5. The Transformer, end to end
#
# All parts are there: scores, masks, heads, positions. Now we put them together, train the result, and let it write: from
# START to STOP, one token at a time.
#
# ## The picture
#
# The original Transformer has an encoder, which reads, and a decoder, which writes. Each is a stack of equal layers, and
# each layer is attention and a small network, both with a shortcut around them.

# %%
import json
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np

import zoo
from zoo.vocabulary import END, START

zoo.draw_model("transformer_tiny")

# %% [markdown]
# There are **three kinds of attention** in it, and they differ only in where queries and keys come from:
#
# | | queries from | keys and values from | mask |
# |---|---|---|---|
# | encoder | source | source | padding |
# | decoder | target | target | padding and future |
# | cross | target | source | padding |
#
# ## Training one
#
# For language models, leave the encoder out: what remains reads the text so far and predicts the next token. We train
# one for real, on sums such as `17+25=42`. It is small, and 500 steps take less than a minute.

# %%
from training import train

workdir = Path("runs/learn/sums")
settings = [
    "training.max_steps=500",
    "training.eval_every=100",
    "training.batch_tokens=1024",
    "training.warmup_steps=25",
]
settings += ["model.num_layers=2", "model.model_dim=64", "model.intermediate_dim=128", "training.learning_rate=0.005"]
arguments = ["--model", "causal_lm_tiny", "--data", "sums", "--workdir", str(workdir), "--set", *settings]
train.main(arguments + (["--resume"] if (workdir / "config.json").exists() else []))

# %% [markdown]
# In a terminal the same is `python -m training.train --model causal_lm_tiny --data sums --workdir …`. The work directory
# has everything: settings, tokens, weights, and a record of how it went.

# %%
records = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
curve = [(record["step"], record["val_loss"]) for record in records if "val_loss" in record]
plt.plot(*zip(*curve, strict=True), marker="o")
plt.xlabel("step")
plt.ylabel("validation loss, nats per token")
plt.show()

# %%
run = zoo.load(workdir)
for prompt, answer in zip(prompts := ["17+25=", "80+19=", "3+4="], run.generate(prompts), strict=True):
    print(f"{prompt}{answer}")

# %% [markdown]
# Not all of that is right yet: it has trained for seconds only. It has learned what a sum *looks like*
# before it learned to add. (The preset `sums_causal_lm_tiny` trained for three minutes and gets 99.4 % right.)
#
# ## Writing, by hand
#
# A trained model does one thing only: given the source and what is written so far, it gives a probability to each next
# token. Everything else is a loop. Here it is, with the model that reads dates.

# %%
dates = zoo.load("preset:dates_rnnsearch")
tokenizers = dates.tokenizers
source = np.array(dates.source_ids(["5 mai 1984"]))
model = dates.model

memory = model.encode(source)
state = model.initial_state(memory)
last, written = np.array([START], "int32"), []
while last[0] != END and len(written) < 20:
    logits, _, state = model.decode_step(last, state, memory, return_attention_scores=True)
    probabilities = np.array(keras.ops.softmax(logits))[0]
    last = np.array([probabilities.argmax()], "int32")
    token = "STOP" if last[0] == END else tokenizers.target.decode([[int(last[0])]])[0]
    written.append(token)
    print(f"{token:5} p = {probabilities.max():.4f}")

# %% [markdown]
# That is *greedy search*: always the most probable token. **Beam search** keeps the best few beginnings, since the best
# sentence may begin with the second-best word. **Sampling** draws, which is what you want for text that should vary.

# %%
for hypothesis in dates.nbest(["5.6.1984"], beam_size=4)[0]:
    print(f"{hypothesis.log_prob:8.3f}  {hypothesis.text}")

# %% [markdown]
# Is `5.6.1984` in June or in May? How sure the model is depends on its training data; the list shows the other dates that
# it considered, and their log probabilities.
#
# ## Why training is fast and writing is slow
#
# In training the whole target is known. With the causal mask all its positions are computed **at once**, each as if it
# did not know the rest; that is called *teacher forcing*. When writing, token $t$ needs token $t - 1$. What has been
# computed for earlier tokens is kept in a *cache*, so that a step costs one row of attention, not all of them.

# %%
lm = zoo.create_model("causal_lm_tiny", vocab_size=100)
for length in (32, 64, 128):
    cost = zoo.cost(lm, query_length=length)
    print(f"{length:4} tokens: {cost.multiplications:>12,} multiplications, path {cost.path_length}")

# %% [markdown]
# ## Now change this
#
# - Train for 1,000 steps (`training.max_steps=1000`). When does it begin to add? Look at the curve: is there a step?
# - Let it write at other temperatures: `run.generate(["17+25="], temperature=1.0, seed=1)` for several seeds.
# - In the loop, replace `argmax` by the second-best token *once*, at the first step. Does the model find its way back?
# - Train a Transformer on dates: `python -m training.train --model transformer_tiny --data dates --workdir runs/dates
#   --set training.max_steps=500`.
