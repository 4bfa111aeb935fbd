"""Models of Marian as its own software writes them, for tests: their files, and their arithmetic one vector at a time.

The arithmetic is that of marian-dev's `src/models/transformer.h`, `src/rnn/cells.h` and `src/layers/generic.h` at
c9f287d, written from what they compute.
"""

import io
import math

import numpy as np
import sentencepiece

CORPUS = ["a man rides a brown horse along the beach", "the old man is late", "a red house by the sea"] * 9
USUAL = {
    "type": "transformer",
    "dim-emb": 8,
    "enc-depth": 2,
    "dec-depth": 2,
    "transformer-heads": 2,
    "transformer-dim-ffn": 11,
    "transformer-ffn-activation": "swish",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-guided-alignment-layer": "last",
    "tied-embeddings": False,
    "tied-embeddings-src": False,
    "tied-embeddings-all": True,
    "dec-cell": "ssru",
    "version": "v1.12.0",
}


def spm_vocabulary(lines=CORPUS, size=34):
    """Returns a SentencePiece model as Marian trains it: the end is 0, an unknown token 1, and there is no other."""
    model = io.BytesIO()
    ids = {"eos_id": 0, "unk_id": 1, "bos_id": -1, "pad_id": -1}
    options = {"vocab_size": size, "hard_vocab_limit": False, "minloglevel": 2, "num_threads": 1, **ids}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, **options)
    return model.getvalue()


def save(path, weights, config):
    """Writes an `.npz` file with its options inside, each array as Marian writes it."""
    lines = (f"{name}: {text(value)}\n" for name, value in config.items())
    options = np.frombuffer("".join(lines).encode() + b"\0", np.int8)
    np.savez(
        path, **{name: value.astype("float32") for name, value in weights.items()}, **{"special:model.yml": options}
    )


def text(value):
    if isinstance(value, list):
        return "".join(f"\n  - {each}" for each in value) or "[]"
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else value


def write(path, config=None, tokens=(None, None)):
    """Writes a folder with random weights; returns these and the options.

    Args:
        path: The folder.
        config: Options that are not the usual ones.
        tokens: The SentencePiece models of source and target; by default both sides share one.
    """
    path.mkdir()
    config = {**USUAL, **(config or {})}
    shared = spm_vocabulary()
    names = ["vocab.src.spm", "vocab.trg.spm"] if tokens[0] else ["vocab.spm", "vocab.spm"]
    sizes = []
    for name, model in zip(names, tokens, strict=True):
        (path / name).write_bytes(model or shared)
        processor = sentencepiece.SentencePieceProcessor()
        processor.LoadFromSerializedProto(model or shared)
        sizes.append(processor.vocab_size())
    weights = random_weights(config, sizes)
    save(path / "model.npz", weights, config)
    vocabularies = "".join(f"  - {name}\n" for name in names)
    (path / "decoder.yml").write_text(f"relative-paths: true\nmodels:\n  - model.npz\nvocabs:\n{vocabularies}")
    return weights, config


def random_weights(config, sizes):
    """Returns random weights by the names that Marian gives them."""
    random, dim, inner = np.random.default_rng(3), config["dim-emb"], config["transformer-dim-ffn"]
    shapes = {}
    if config["tied-embeddings-all"] or config["tied-embeddings-src"]:
        shapes["Wemb"] = (sizes[0], dim)
    else:
        shapes |= {"encoder_Wemb": (sizes[0], dim), "decoder_Wemb": (sizes[1], dim)}
    if not (config["tied-embeddings-all"] or config["tied-embeddings"]):
        shapes["decoder_ff_logit_out_Wt"] = (sizes[1], dim)
    shapes["decoder_ff_logit_out_b"] = (1, sizes[1])
    pre, suffix = config["transformer-preprocess"], "_pre" if config["transformer-preprocess"] else ""
    rms = "r" in pre + config["transformer-postprocess"]

    def norm(name):
        kinds = ("rms_scale",) if rms else ("ln_scale", "ln_bias")
        shapes.update({f"{name}_{kind}{suffix if '_top' not in name else ''}": (1, dim) for kind in kinds})

    for half, depth in (("encoder", "enc-depth"), ("decoder", "dec-depth")):
        for layer in range(1, config[depth] + 1):
            name = f"{half}_l{layer}"
            parts = ["self"] if half == "encoder" else ["self", "context"]
            if half == "decoder" and config["transformer-decoder-autoreg"] == "rnn":
                parts = ["context"]
                shapes |= {f"{name}_rnn_W": (dim, dim), f"{name}_rnn_Wf": (dim, dim), f"{name}_rnn_bf": (1, dim)}
                norm(f"{name}_rnn" if pre else f"{name}_rnn_ffn")
            for part in parts:
                for letter in "qkvo":
                    shapes |= {f"{name}_{part}_W{letter}": (dim, dim), f"{name}_{part}_b{letter}": (1, dim)}
                norm(f"{name}_{part}_Wo")
            shapes |= {f"{name}_ffn_W1": (dim, inner), f"{name}_ffn_b1": (1, inner)}
            shapes |= {f"{name}_ffn_W2": (inner, dim), f"{name}_ffn_b2": (1, dim)}
            norm(f"{name}_ffn_ffn")
        if config["transformer-postprocess-top"]:
            norm(f"{half}_top")
    means = {name: 1.0 if "_scale" in name else 0.0 for name in shapes}
    return {name: random.normal(means[name], 0.4, shape).astype("float32") for name, shape in shapes.items()}


class Reference:
    """A Marian model in NumPy, in double precision.

    Args:
        weights: Its weights by name.
        config: Its options.
    """

    def __init__(self, weights, config):
        self.weights = {name: value.astype("float64") for name, value in weights.items()}
        self.config = config

    def logits(self, source, target):
        """Returns the logits [T, V] of target tokens, given source ids with their end, and target ids without it."""
        memory = self.stack("encoder", self.embedded("encoder", source), None)
        begun = [np.zeros(self.config["dim-emb"]), *(self.row("decoder", i) for i in target[:-1])]
        hidden = self.stack("decoder", [self.placed(vector, t) for t, vector in enumerate(begun)], memory)
        matrix = self.weights.get("decoder_ff_logit_out_Wt")
        if matrix is None and "decoder_ff_logit_out_W" in self.weights:
            matrix = self.weights["decoder_ff_logit_out_W"].T
        if matrix is None:
            matrix = self.table("decoder")
        return np.array([matrix @ vector + self.weights["decoder_ff_logit_out_b"][0] for vector in hidden])

    def table(self, half):
        return self.weights["Wemb"] if "Wemb" in self.weights else self.weights[f"{half}_Wemb"]

    def row(self, half, token):
        return self.table(half)[token]

    def embedded(self, half, tokens):
        return [self.placed(self.row(half, token), place) for place, token in enumerate(tokens)]

    def placed(self, vector, place):
        """Returns `√D · x + p`: sines, then cosines."""
        dim = len(vector)
        half, placed = dim // 2, []
        for i, number in enumerate(vector):
            angle = place * math.exp(-(i % half) * math.log(10000.0) / (half - 1))
            placed.append(math.sqrt(dim) * number + (math.sin(angle) if i < half else math.cos(angle)))
        return np.array(placed)

    def stack(self, half, hidden, memory):
        depth = self.config["enc-depth" if half == "encoder" else "dec-depth"]
        for layer in range(1, depth + 1):
            name = f"{half}_l{layer}"
            if half == "decoder" and self.config["transformer-decoder-autoreg"] == "rnn":
                hidden = self.part((f"{name}_rnn", f"{name}_rnn_ffn"), hidden, lambda x, n=name: self.ssru(n, x))
            else:
                own = self.part(
                    (f"{name}_self_Wo",) * 2,
                    hidden,
                    lambda x, n=name: self.attention(f"{n}_self", x, x, half == "decoder"),
                )
                hidden = own
            if memory is not None:
                hidden = self.part(
                    (f"{name}_context_Wo",) * 2,
                    hidden,
                    lambda x, n=name: self.attention(f"{n}_context", x, memory, False),
                )
            hidden = self.part(
                (f"{name}_ffn_ffn",) * 2, hidden, lambda x, n=name: [self.feed_forward(n, vector) for vector in x]
            )
        if self.config["transformer-postprocess-top"]:
            hidden = [self.norm(f"{half}_top", "", vector) for vector in hidden]
        return hidden

    def part(self, names, hidden, function):
        """Returns `norm(x + f(x))`, or `x + f(norm(x))`; `names` are those of the normalisation before and after."""
        before = bool(self.config["transformer-preprocess"])
        read = [self.norm(names[0], "_pre", vector) for vector in hidden] if before else hidden
        summed = [vector + result for vector, result in zip(hidden, function(read), strict=True)]
        return summed if before else [self.norm(names[1], "", vector) for vector in summed]

    def norm(self, name, suffix, vector):
        if f"{name}_rms_scale{suffix}" in self.weights:
            return vector / math.sqrt(np.mean(vector**2) + 1e-6) * self.weights[f"{name}_rms_scale{suffix}"][0]
        scale, bias = (self.weights[f"{name}_ln_{kind}{suffix}"][0] for kind in ("scale", "bias"))
        centred = vector - np.mean(vector)
        return centred / math.sqrt(np.mean(centred**2) + 1e-6) * scale + bias

    def affine(self, name, suffix, vector):
        return vector @ self.weights[f"{name}_W{suffix}"] + self.weights[f"{name}_b{suffix}"][0]

    def attention(self, name, queries, values, causal):
        heads, dim = self.config["transformer-heads"], self.config["dim-emb"]
        size, results = dim // heads, []
        keys = [self.affine(name, "k", value) for value in values]
        contents = [self.affine(name, "v", value) for value in values]
        for t, query in enumerate(self.affine(name, "q", query) for query in queries):
            joined = np.zeros(dim)
            for head in range(heads):
                part = slice(head * size, (head + 1) * size)
                seen = range(t + 1 if causal else len(values))
                weights = np.array([math.exp(query[part] @ keys[s][part] / math.sqrt(size)) for s in seen])
                weights /= weights.sum()
                joined[part] = sum(weight * contents[s][part] for weight, s in zip(weights, seen, strict=True))
            results.append(self.affine(name, "o", joined))
        return results

    def ssru(self, name, inputs):
        state, results = np.zeros(self.config["dim-emb"]), []
        for vector in inputs:
            gate = 1 / (1 + np.exp(-self.affine(f"{name}_rnn", "f", vector)))
            state = gate * state + (1 - gate) * (vector @ self.weights[f"{name}_rnn_W"])
            results.append(np.maximum(state, 0))
        return results

    def feed_forward(self, name, vector):
        hidden = self.affine(f"{name}_ffn", "1", vector)
        kind = self.config["transformer-ffn-activation"]
        if kind == "relu":
            hidden = np.maximum(hidden, 0)
        elif kind == "swish":
            hidden = hidden / (1 + np.exp(-hidden))
        else:
            hidden = np.array([0.5 * x * (1 + math.erf(x / math.sqrt(2))) for x in hidden])
        return self.affine(f"{name}_ffn", "2", hidden)
