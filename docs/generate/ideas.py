"""The layers by idea, what beginners need first: the order of the site, and each layer's equation as mathematics."""

from dataclasses import dataclass, field

LAYERS = "look-up/layers"


@dataclass(frozen=True)
class Idea:
    """Layers that belong together.

    Attributes:
        title: Its heading.
        about: A sentence.
        layers: Equation in LaTeX by the name of a layer; empty where the layer is none.
        experiments: Those that show it, by the names of their pages in docs/evidence.
    """

    title: str
    about: str
    layers: dict[str, str]
    experiments: tuple[str, ...] = field(default=())


IDEAS = (
    Idea(
        "One score, one weighted sum",
        "A query is compared with each key; the softmax of the scores weighs the values.",
        {
            "AdditiveAttention": r"\operatorname{softmax}\left(v^\top \tanh(W_1 q + W_2 k + b)\right) V",
            "DotAttention": r"\operatorname{softmax}\left(Q K^\top\right) V",
            "GeneralAttention": r"\operatorname{softmax}\left(Q W K^\top\right) V",
            "ConcatAttention": r"\operatorname{softmax}\left(v^\top \tanh(W [q; k])\right) V",
            "ScaledDotProductAttention": r"\operatorname{softmax}\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V",
            "SelfAttention": r"\operatorname{softmax}\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V, \quad "
            r"Q = X W_q, \; K = X W_k, \; V = X W_v",
            "CosineAttention": r"\operatorname{softmax}\left(\frac{\cos(q, k)}{\tau}\right) V",
            "Attention": r"\operatorname{softmax}\left(\operatorname{score}(Q, K)\right) V",
        },
        ("scores", "scaling", "alignment"),
    ),
    Idea(
        "Several heads",
        "Attentions beside one another, each with projections of its own.",
        {
            "MultiHeadAttention": r"\left[\operatorname{head}_1; \dots; \operatorname{head}_N\right] W_o, \quad "
            r"\operatorname{head}_i = \operatorname{attention}(Q W_q^i, K W_k^i, V W_v^i)",
            "GroupedQueryAttention": r"\operatorname{head}_i = \operatorname{attention}(Q W_q^i, K W_k^g, V W_v^g), "
            r"\quad g = \lfloor i \, G / N \rfloor",
            "MultiHeadLatentAttention": r"c_s = \operatorname{norm}(W_{DKV} x_s), \quad "
            r"k_s^i = [W_{UK}^i c_s; R(s) W_{KR} x_s], \quad v_s^i = W_{UV}^i c_s",
            "TalkingHeadsAttention": r"W_j = \operatorname{softmax}\left(\sum_i P^l_{ij} "
            r"\operatorname{score}_i\right), \quad \operatorname{head}_j = \left(\sum_i P^w_{ij} W_i\right) V_j",
            "DifferentialAttention": r"\operatorname{head}_i = \left(\operatorname{softmax}(S_1) - \lambda "
            r"\operatorname{softmax}(S_2)\right) V_i",
        },
        ("heads",),
    ),
    Idea(
        "Score functions",
        "How a query and a key are compared; each attention layer takes each of them.",
        {
            "AdditiveScore": r"\operatorname{score}(s, h) = v^\top \tanh(W_1 s + W_2 h + b)",
            "NormalizedAdditiveScore": r"\operatorname{score}(s, h) = g \, \frac{v^\top}{\lVert v \rVert} "
            r"\tanh(W_1 s + W_2 h + b)",
            "ConcatScore": r"\operatorname{score}(s, h) = v^\top \tanh(W [s; h])",
            "TanhConcatScore": r"\operatorname{score}(s, h) = \tanh(W [s; h] + b)",
            "DotScore": r"\operatorname{score}(q, k) = q^\top k",
            "ScaledDotScore": r"\operatorname{score}(q, k) = \frac{q^\top k}{\sqrt{d_k}}",
            "GeneralScore": r"\operatorname{score}(q, k) = q^\top W k",
            "CosineScore": r"\operatorname{score}(q, k) = \frac{q^\top k}{\tau \, \lVert q \rVert \, \lVert k \rVert}",
            "LocationScore": r"\operatorname{score}(q, s) = (W q)_s",
            "CoverageScore": r"\operatorname{score}(s_i, h_j) = v^\top \tanh(W_1 s_i + W_2 h_j + w \, C_{ij} + b)",
            "PerHeadScore": r"\operatorname{score}_i(q_i, k_i), \quad i = 1, \dots, N",
            "CallableScore": r"\operatorname{score}(q, k) = f(q, k)",
            "Score": r"\operatorname{score}(q, k) = \operatorname{compare}\left(f_q(q), f_k(k)\right)",
            "get_score": "",
        },
        ("scores", "scaling"),
    ),
    Idea(
        "Positions",
        "What makes the results of a layer depend on the order of its inputs.",
        {
            "SinusoidalPositions": r"P_{p, 2i} = \sin \frac{p}{w^{2i/D}}, \quad P_{p, 2i+1} = \cos \frac{p}{w^{2i/D}}",
            "LearnedPositions": r"x_p + E_p",
            "IntegerPositions": r"x_p + p",
            "ShawRelativePositions": r"e_{ij} = \frac{q_i^\top (k_j + a^K_{ij})}{\sqrt{d_k}}, \quad "
            r"z_i = \sum_j \alpha_{ij} (v_j + a^V_{ij})",
            "T5RelativePositions": r"\operatorname{score}(i, j) + b_{n, \operatorname{bucket}(j - i)}",
            "RotaryPositions": r"(x_{2i}, x_{2i+1}) \, R\left(\frac{p}{w^{2i/R}}\right)",
            "XPosPositions": r"R(p \, \theta_i) \, q \cdot \zeta_i^{p/b}, \quad R(s \, \theta_i) \, k \cdot "
            r"\zeta_i^{-s/b}",
            "ALiBiPositions": r"\operatorname{score}(i, j) - m \, |i - j|",
            "Positions": "",
        },
        ("positions",),
    ),
    Idea(
        "Which keys a query attends to",
        "Windows, blocks and other patterns of the pairs that are compared; layers and rules combine freely.",
        {
            "Causal": r"s \le p",
            "SlidingWindow": r"p - \mathit{left} \le s \le p + \mathit{right}",
            "SlidingWindowAttention": r"|p - s| \le \mathit{window}",
            "LocalAttention": r"|s - p_t| \le D",
            "BlockLocalAttention": r"\lfloor p / c \rfloor = \lfloor s / c \rfloor",
            "LocalBlocks": r"\lfloor p / c \rfloor = \lfloor s / c \rfloor",
            "Dilated": r"s = p + i \, d, \quad |i| \le \mathit{window}",
            "GlobalTokens": r"p \in G \;\text{or}\; s \in G",
            "PrefixLM": r"s \le p \;\text{or}\; s < \mathit{prefix}",
            "Segments": r"\operatorname{segment}(p) = \operatorname{segment}(s)",
            "BlockSparse": r"\operatorname{pattern}_{\lfloor p / c \rfloor, \lfloor s / c \rfloor} = 1",
            "SummaryTokens": r"s \bmod c \ge c - \mathit{count}",
            "TopBlocks": r"\lfloor s / c \rfloor \in \operatorname{top}(p)",
            "MaskMod": r"f(\mathit{batch}, \mathit{head}, p, s) = 1",
            "VisibilityRule": "",
        },
        ("masking", "distance"),
    ),
    Idea(
        "From scores to weights",
        "What takes the place of the softmax; each attention layer takes each of them.",
        {
            "SoftmaxNormalization": r"w_i = \frac{e^{s_i}}{\sum_j e^{s_j}}",
            "SparsemaxNormalization": r"w_i = \max(s_i - \tau, 0), \quad \sum_i w_i = 1",
            "EntmaxNormalization": r"w_i = \max\left((\alpha - 1) s_i - \tau, 0\right)^{1 / (\alpha - 1)}, \quad "
            r"\sum_i w_i = 1",
            "SigmoidNormalization": r"w_i = \sigma(s_i + b)",
            "SinkNormalization": r"w_i = \frac{e^{s_i}}{e^z + \sum_j e^{s_j}}",
            "Normalization": "",
            "get_normalization": "",
        },
    ),
    Idea(
        "A state in place of all keys",
        "Linear time: what was read is summed up in a state of fixed size.",
        {
            "LinearAttention": r"w_{ts} = \frac{\varphi(q_t)^\top \varphi(k_s)}{\sum_j \varphi(q_t)^\top "
            r"\varphi(k_j)}, \quad \varphi(x) = \operatorname{elu}(x) + 1",
            "PerformerAttention": r"w_{ts} = \frac{\varphi(q_t)^\top \varphi(k_s)}{\sum_j \varphi(q_t)^\top "
            r"\varphi(k_j)}, \quad \operatorname{E}\left[\varphi(q)^\top \varphi(k)\right] = e^{q^\top k / \sqrt{H}}",
            "MultiScaleRetention": r"\operatorname{head}_i = \left(\frac{Q K^\top}{\sqrt{H}} \odot D_i\right) V, \quad "
            r"(D_i)_{ts} = \gamma_i^{t - s} \;\text{for}\; s \le t",
            "GatedLinearAttention": r"S_t = \operatorname{diag}(\alpha_t) \, S_{t-1} + k_t v_t^\top, \quad "
            r"\operatorname{head}_t = \operatorname{norm}\left(\frac{S_t^\top q_t}{\sqrt{H}}\right)",
            "DeltaRuleAttention": r"S_t = S_{t-1} + \beta_t \, k_t \left(v_t - S_{t-1}^\top k_t\right)^\top, \quad "
            r"\operatorname{head}_t = \operatorname{norm}\left(\frac{S_t^\top q_t}{\sqrt{H}}\right)",
            "AverageAttention": r"g_t = \operatorname{FFN}\left(\frac{1}{t} \sum_{s \le t} x_s\right), \quad "
            r"y_t = i_t \odot x_t + f_t \odot g_t",
            "SSRU": r"c_t = f_t \odot c_{t-1} + (1 - f_t) \odot W x_t, \quad y_t = \operatorname{relu}(c_t)",
        },
        ("state", "cost", "distance"),
    ),
    Idea(
        "Attention of recurrent decoders",
        "Where attention began: a decoder that looks at its source at each step.",
        {
            "RecurrentAttentionCell": r"c_t = \operatorname{attention}(s_{t-1}, h), \quad "
            r"s_t = f(s_{t-1}, y_{t-1}, c_t)",
            "LuongAttentionCell": r"s_t = f(s_{t-1}, y_{t-1}), \quad c_t = \operatorname{attention}(s_t, h), \quad "
            r"\tilde{s}_t = \tanh(W_c [c_t; s_t])",
            "ConditionalAttentionCell": r"s'_t = f_1(s_{t-1}, y_{t-1}), \quad c_t = \operatorname{attention}(s'_t, h), "
            r"\quad s_t = f_2(s'_t, c_t)",
            "AttentionRNN": r"y_t, s_t = \operatorname{cell}(x_t, s_{t-1}, h)",
            "MonotonicAttention": r"p_{ij} = \sigma(e_{ij}), \quad q_{ij} = (1 - p_{i,j-1}) \, q_{i,j-1} + "
            r"\alpha_{i-1,j}, \quad \alpha_{ij} = p_{ij} \, q_{ij}",
            "BidirectionalEncoder": r"h_j = [\overrightarrow{h}_j; \overleftarrow{h}_j]",
            "DeepTransitionCell": r"s_t = T_n\left(\dots T_1\left(\operatorname{cell}(x_t, s_{t-1})\right)\right)",
            "Maxout": r"y_j = \max(x_{2j}, x_{2j+1})",
        },
        ("bottleneck", "alignment"),
    ),
    Idea(
        "The parts of a Transformer",
        "Attention and a feed-forward network, each in a residual connection.",
        {
            "TransformerEncoderBlock": r"y = \operatorname{norm}\left(x + \operatorname{attention}(x)\right), \quad "
            r"z = \operatorname{norm}\left(y + \operatorname{FFN}(y)\right)",
            "TransformerDecoderBlock": r"y_1 = \operatorname{norm}\left(x + \operatorname{attention}_1(x)\right), \; "
            r"y_2 = \operatorname{norm}\left(y_1 + \operatorname{attention}_2(y_1, h)\right), \; "
            r"z = \operatorname{norm}\left(y_2 + \operatorname{FFN}(y_2)\right)",
            "FeedForward": r"f(x W_1 + b_1) \, W_2 + b_2",
            "GatedFeedForward": r"\left(f(x W) \odot x V\right) W_2",
        },
        ("zoo",),
    ),
    Idea(
        "Convolutions",
        "Weights that depend on the distance alone, or on the query alone.",
        {
            "LightweightConvolution": r"y_t = \left(\sum_j \operatorname{softmax}(W_h)_j \, g_{t+j-l}\right) W_o",
            "DynamicConvolution": r"y_t = \left(\sum_j \operatorname{softmax}(W_q \, g_t)_{hj} \, g_{t+j-l}\right) W_o",
            "GatedConvolutionBlock": r"h = \sqrt{\tfrac{1}{2}} \left(x + a \odot \sigma(b)\right), \quad "
            r"[a; b] = W * x + w",
        },
        ("cost",),
    ),
    Idea(
        "One vector for a text",
        "Learned queries pool a sequence.",
        {
            "AttentionPooling": r"\operatorname{attention}(Q, X), \quad Q \;\text{learned}",
            "SegmentPooling": r"\operatorname{attention}(q, X_{\operatorname{segment} = i}), \quad q \;\text{learned}",
        },
        ("context",),
    ),
    Idea(
        "For layers of your own",
        "The base of all attention layers, and the way from Keras' layers.",
        {
            "BaseAttention": r"\operatorname{dropout}\left(\operatorname{softmax}\left(\operatorname{mask}("
            r"\operatorname{score}(Q, K))\right)\right) V",
            "from_keras": "",
        },
    ),
)

IDEA_OF = {name: idea for idea in IDEAS for name in idea.layers}
"""The idea that each layer belongs to."""


def navigation() -> list[dict[str, list[str]]]:
    """Returns the pages of the layers for the navigation, by idea."""
    return [{idea.title: [f"{LAYERS}/{name}.md" for name in idea.layers]} for idea in IDEAS]
