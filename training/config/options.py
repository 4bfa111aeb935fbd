"""The settings of a run, each declared in one line; see `zoo.options`."""

import dataclasses
import math
from dataclasses import dataclass

from training.config.tokenizer_files import tokenizer_files
from zoo.errors import InputError
from zoo.options import Options, choice, count, flag, number, rate, size, text, texts
from zoo.text.subwords import NORMALIZATIONS


@dataclass(frozen=True, kw_only=True)
class DataConfig(Options):
    """Settings of the training data."""

    spec: str = text(dataclasses.MISSING, "Data SPEC, such as `dates` or `text:DIR:SRC-TGT`.")
    tokenizer: str = choice(
        "auto",
        ("auto", "subword", "words", "chars"),
        '`"auto"` depends on the data: characters for `dates`, subwords for text. `file:PATH` is a tokenizer of your '
        "own, which is copied into the work directory: a SentencePiece model, a `tokenizer.json` of Hugging Face "
        "(byte-level BPE, WordPiece), or `tokenizers/NAME.json` of a work directory; `file:SOURCE,file:TARGET` are the "
        "two of a translator, if they differ.",
        forms=("file:PATH",),
    )
    tokenizer_sha256: str = text(
        "",
        "SHA-256 sum that the file of `data.tokenizer` must have, or two sums with a comma between them for two files; "
        "not checked if empty. `config.json` contains it, so that a run cannot be repeated with another file.",
    )
    vocab_size: int | None = size(
        6000,
        "Largest size of each vocabulary of subwords or words; of characters, all are kept. The size of a file of "
        "`data.tokenizer` is fixed, and a smaller `vocab_size` is refused.",
        automatic=True,
    )
    shared_vocabulary: bool | None = flag(
        None, "Whether both sides of a pair share a vocabulary; by default, this depends on the data.", automatic=True
    )
    lowercase: bool = flag(False, "Whether all text is converted to lower case.")
    normalization: str = choice(
        "auto",
        NORMALIZATIONS,
        "SentencePiece's rule by which subwords and words normalise text: `nmt_nfkc` or `nfkc`, with `_cf` in lower "
        'case, or `identity`. `"auto"` is `nmt_nfkc`, but joiners (U+200C, U+200D) are not changed.',
    )
    max_length: int = size(
        100,
        "Largest number of tokens of a training example on either side, the end included; longer ones are truncated, "
        "and training reports their number. For a continuous text: the number of tokens in a window.",
    )
    max_examples: int = count(
        0,
        "Number of training examples of a `tfds:` dataset that are read, from its beginning, including those held out "
        "for validation; 0 for all. They are kept in memory, which takes tens of GB for the whole of `lm1b`.",
    )
    alignments: str = text(
        "",
        "File of word alignments of the training pairs, a line such as `0-0 1-2` for each (Pharaoh's format, as "
        "fast_align and eflomal write it), with which the attention is trained; see `training.guided_alignment`.",
    )
    sampling: float = number(
        0.0,
        "Subword regularisation (Kudo 2018): at each step, segmentations of the training texts are drawn by their "
        "probability to this power; 0 always selects the best, and 0.1 to 0.5 are usual. Batches may then have more "
        "tokens than `training.batch_tokens`.",
        minimum=0,
    )
    changed: str = choice(
        "refuse",
        ("refuse", "accept"),
        "Whether `--resume` accepts data that changed since the run was begun; applies to that command alone.",
    )
    classes: list[str] | None = texts(None, "The labels in the data.", automatic=True, derived=True)
    parts: list[str] | None = texts(None, "Parts of the data with metrics of their own.", automatic=True, derived=True)

    def check(self) -> None:
        if not tokenizer_files(self.tokenizer):
            if self.tokenizer_sha256:
                raise InputError(
                    "data.tokenizer_sha256 requires data.tokenizer=file:PATH. Received: data.tokenizer="
                    f"{self.tokenizer} and data.tokenizer_sha256={self.tokenizer_sha256}."
                )
            return
        for name in ("lowercase", "normalization"):
            if (value := getattr(self, name)) != self.declared()[name].default:
                raise InputError(
                    f"data.{name} is for a tokenizer that is trained; a file contains its own rules. Received: "
                    f"data.{name}={value} and data.tokenizer={self.tokenizer}. Leave one of the two out."
                )
        if self.shared_vocabulary and len(tokenizer_files(self.tokenizer)) > 1:
            raise InputError(
                "data.shared_vocabulary=true is for one tokenizer of both sides. Received: data.tokenizer="
                f"{self.tokenizer}."
            )


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Options):
    """Settings of the training loop."""

    max_steps: int = size(8000, "Number of optimizer steps; rounded up to whole rounds of `eval_every` steps.")
    eval_every: int = size(
        250, "Steps in a round, which ends with a validation, a line in `metrics.jsonl` and a checkpoint."
    )
    batch_tokens: int = size(4096, "Largest number of tokens in a batch, padding included, counted on the longer side.")
    accumulate_steps: int = size(
        1,
        "Batches per step. A step computes the same as with a single batch of all their tokens, but takes the memory "
        "of one of them.",
    )
    remat: bool = flag(
        False,
        "Whether the blocks of Transformers and convolutions recompute their activations for the gradient "
        "instead of storing them (Chen et al. 2016): less memory for about a third more time.",
    )
    optimizer: str = choice(
        "adam",
        ("adam", "muon"),
        '`"muon"` makes the updates of hidden matrices orthogonal, as large as Adam\'s, so that a learning rate suits '
        "both; Adam updates embeddings, output layers and vectors. Muon is for one device.",
    )
    learning_rate: float = number(1e-3, "Peak learning rate.")
    schedule: str = choice(
        "constant",
        ("constant", "inverse_sqrt", "cosine"),
        '`"constant"` rises linearly for `warmup_steps`, then stays; `"inverse_sqrt"` falls with 1/√step after that; '
        '`"cosine"` falls along half a cosine to `final_rate` at the last step.',
    )
    warmup_steps: int = count(500, "Steps until the peak.")
    final_rate: float = rate(0.0, 'Share of the peak rate at which `"cosine"` ends, in [0, 1).')
    cooldown: float = rate(
        0.0, "Share of the steps, at the end, over which the rate falls linearly to zero, in [0, 1)."
    )
    beta_2: float = rate(0.98, "Adam's decay of the mean square of the gradient.")
    weight_decay: float = number(
        0.0,
        "Share of the weights, times the learning rate, that each step subtracts from them (AdamW); biases and the "
        "gains of normalisations are excluded; 0 for none.",
        minimum=0,
    )
    loss: str = text(
        "cross_entropy", "The loss of a token or a class; others are registered with `register_loss`, see --import."
    )
    label_smoothing: float = rate(0.1, "Share of the target distribution spread over the vocabulary, in [0, 1).")
    class_weights: str = text(
        "none",
        "Weights of the classes in the training loss of a classifier: `balanced` for n / (C · n_c), where n_c of n "
        "training examples are of one of C classes, so that rare classes count as much as frequent ones; or "
        "`LABEL=WEIGHT,LABEL=WEIGHT`, positive numbers, 1 for other labels. The validation loss is unweighted.",
    )
    consistency: str = choice(
        "none",
        ("none", "simcut", "rdrop"),
        'Adds a loss that makes the outputs of a second pass consistent: `"rdrop"` with another dropout mask (Liang et '
        'al. 2021), `"simcut"` with a share of the embeddings cut off (Gao et al. 2022). A step takes about twice as '
        "long.",
    )
    consistency_weight: float = number(
        3.0, "Weight α of the consistency loss; the papers use 3 for SimCut and 1 to 5 for R-Drop.", minimum=0
    )
    cutoff: float = rate(0.05, "Share of the embeddings that SimCut cuts off.")
    guided_alignment: float = number(
        1.0,
        "Weight of the cross-entropy between the attention and `data.alignments`, if there are any (Chen et al. 2016).",
        minimum=0,
    )
    clip_norm: float = number(1.0, "Largest global norm of the gradient; 0 for no clipping.", minimum=0)
    ema: float = rate(
        0.0,
        "Momentum of an exponential moving average of the weights, such as 0.999, in [0, 1). Unless it is 0, the "
        "average is validated and saved, while training continues from the weights themselves.",
    )
    average_checkpoints: int = size(5, "Number of last checkpoints that are averaged into the final weights.")
    checkpoints: str = choice(
        "auto",
        ("auto", "npz", "orbax"),
        'How checkpoints are written: `"npz"` as a file, by one process; `"orbax"` as folders, on JAX, by all '
        'processes and during training; `"auto"` is `"orbax"` for several processes if Orbax is installed.',
    )
    patience: int = count(10, "Rounds without a better validation loss before training stops; 0 for never.")
    precision: str = choice(
        "auto",
        ("auto", "float32", "mixed_bfloat16", "mixed_float16"),
        '`"auto"` computes in bfloat16 on GPUs and TPUs, else in float32. On a CPU with bfloat16 instructions, '
        "longer runs measure forward passes first and use bfloat16 if it is faster; the result is cached in Keras' "
        "folder. A resumed run keeps the choice.",
    )
    jit: str = choice("auto", ("auto", "on", "off"), 'Whether XLA compiles the step; `"auto"` for JAX only.')
    devices: int = count(
        0, "Number of local devices that share each batch; 0 for all GPUs of the machine, or the CPU if there are none."
    )
    mesh: str = text(
        "",
        "On JAX, how devices share the work: `data=4` spreads each batch over 4 devices that have all weights; "
        "`fsdp=4` also spreads weights and the optimizer's state over them; `model=2`, with either, splits each "
        "layer over 2. The product must be the number of devices of all processes. If empty, all of them are `data`.",
    )
    cores: int = count(
        0,
        "Parts of each batch that cores of the CPU compute in parallel, on TensorFlow without a GPU; 0 for "
        "the number of cores, with at least 512 tokens per part. 1 leaves the cores to TensorFlow.",
    )
    init_from: str = text(
        "",
        "Work directory, or `preset:NAME`, whose tokenizers, model options and weights the run begins from; a "
        "classifier with other classes gets a new last layer. None if empty.",
    )
    lora_rank: int = count(
        0,
        "Rank of LoRA: trains low-rank updates of the matrices of `init_from`, those of dense layers, convolutions and "
        "embeddings, and the last layer of a classifier. Biases, normalisations and tables of positions are not "
        "trained, and recurrent models are refused. The rank must be less than both sizes of each matrix. The saved "
        "model is an ordinary one. 0 trains all weights.",
    )
    seed: int = count(1, "Seed of initial weights, dropout and the order of the data.")

    @property
    def num_rounds(self) -> int:
        """Number of rounds of the run."""
        return math.ceil(self.max_steps / self.eval_every)

    @property
    def total_steps(self) -> int:
        """Steps in whole rounds."""
        return self.num_rounds * self.eval_every
