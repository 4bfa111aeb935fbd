# %% [markdown]
# # 6. From a trained run to a served answer
#
# A model in a notebook helps one person. To help others it must run where there is no notebook, no Python and no
# tokenizer: strings in, strings out. This page goes all the way, with a model that comes with the package.
#
# ## 1. A run
#
# A *work directory* is what training leaves. `zoo.load` opens it; presets are work directories, too.

# %%
import atexit
import json
import re
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt

import zoo

run = zoo.load("preset:dates_rnnsearch")
run.translate(["le 14 juillet 1989"])

# %% [markdown]
# ## 2. An export
#
# The export is a *SavedModel*: one folder with a graph, its weights and its vocabulary. Text becomes tokens, tokens
# become text, and the search for the best answer runs, all inside the graph. The stock server needs nothing of ours.

# %%
base = Path("runs/learn/exported/dates")
done = subprocess.run(
    [sys.executable, "-m", "export.saved_model", "preset:dates_rnnsearch", "--output", base, "--beam_size", "3"],
    capture_output=True,
    text=True,
    check=True,
)
version = Path(done.stdout.strip())
for path in sorted(version.rglob("*")):
    if path.is_file():
        print(f"{path.stat().st_size:>9,}  {path.relative_to(version)}")

# %% [markdown]
# ## 3. A server
#
# In production this is TensorFlow Serving. Where it is not installed, `export.serve` stands in for it, with the same
# flags and the same protocol. Port 0 means: any free port.

# %%
server = subprocess.Popen(
    [
        sys.executable,
        "-m",
        "export.serve",
        "--port",
        "0",
        "--rest_api_port",
        "0",
        "--model_name",
        "dates",
        "--model_base_path",
        base,
    ],
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
)
atexit.register(server.terminate)  # however this ends
for line in server.stdout:
    if ready := re.search(r"gRPC on \S+?:(\d+).*?REST on \S+?:(\d+)", line):
        port, rest_port = map(int, ready.groups())
        break
print("the server is ready")

# %% [markdown]
# ## 4. An answer
#
# From a terminal: `python -m export.client --server localhost:8500 --model dates "5 mai 1984"`. From Python, over gRPC:

# %%
from export.client import Client

client = Client(f"localhost:{port}", "dates")
client.translate(["le 14 juillet 1989", "24 марта 1931 г.", "2093年7月24日"])

# %% [markdown]
# Clients in any language can send requests over REST; `curl` would do:

# %%
import urllib.request

body = json.dumps({"instances": ["5 mai 1984"]}).encode()
request = urllib.request.Request(f"http://localhost:{rest_port}/v1/models/dates:predict", body)
with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as response:
    print(json.dumps(json.load(response), indent=2))

# %% [markdown]
# ## 5. Looking at it
#
# A served model also returns its attention. The signature `attention` returns the tokens of both sides and the weights.

# %%
answer = client.predict("attention", {"text": ["le 14 juillet 1989"]})
source, target = list(answer["source_tokens"][0]), list(answer["target_tokens"][0])
plt.imshow(answer["attention"][0, 0, 0], cmap="Greens", vmin=0, vmax=1)
plt.xticks(range(len(source)), source)
plt.yticks(range(len(target)), target)
plt.show()

# %% [markdown]
# Is the served model the one that was trained? The same texts must give the same answers:

# %%
texts = ["1 April 2024", "Dec 24, 1999", "2001-09-09"]
print(client.translate(texts) == run.translate(texts, beam_size=3))

# %%
client.close()
server.terminate()
server.wait()
print("the server has ended")

# %% [markdown]
# ## Now change this
#
# - Export with `--check`. What is compared before the version becomes visible?
# - Export a second version into the same folder while the server runs, and send requests again. None of
#   them fails in between.
# - Serve `preset:senses_self_attention_classifier` and call its signatures `classify` and
#   `attention`.
# - Serve a model of your own: [Ten minutes](../do/ten-minutes.md) and [Your own text](../do/your-text.md).
