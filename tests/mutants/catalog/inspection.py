"""Planted faults: what is counted, traced and drawn of layers and models."""

from tests.mutants.mutant import Mutant

COST = ("tests/zoo/inspection/test_cost.py",)
TRACE = ("tests/zoo/inspection/test_trace.py",)
DIAGRAM = ("tests/zoo/inspection/test_diagram.py",)

MUTANTS: list[Mutant] = [
    Mutant(
        "a product counts the axes of its result",
        "zoo/inspection/operations.py",
        "return _products(result, inputs[0].shape[-1])",
        "return _products(result, inputs[-1].shape[-1])",
        COST,
    ),
    Mutant(
        "a sum of k terms has k additions",
        "zoo/inspection/operations.py",
        "additions=results * max(terms - 1, 0)",
        "additions=results * terms",
        COST,
    ),
    Mutant(
        "convolutions multiply the zeros around their inputs",
        "zoo/inspection/operations.py",
        "share = math.prod(parts)",
        "share = 1.0",
        COST,
    ),
    Mutant(
        "weights that two steps share count twice",
        "zoo/inspection/counting.py",
        "        self.weights |= set(new)\n",
        "",
        COST,
    ),
    Mutant(
        "a recurrence counts one position alone",
        "zoo/inspection/counting.py",
        "operations=self.operations * times,",
        "operations=self.operations,",
        COST,
    ),
    Mutant(
        "a window sees to one side",
        "zoo/inspection/counting.py",
        "return 2 * int(layer.window) + 1",
        "return int(layer.window) + 1",
        COST,
    ),
    Mutant(
        "counting leaves its traces in the layer",
        "zoo/inspection/graph.py",
        "                del each[length:]",
        "                pass",
        ("tests/zoo/inspection",),
    ),
    Mutant(
        "a trace shows the scaled scores as the raw ones",
        "zoo/inspection/recording.py",
        'recorder.record_scores("raw_scores", "query · key", compare(recorder.unscaled, key))',
        'recorder.record_scores("raw_scores", "query · key", compare(query, key))',
        TRACE,
    ),
    Mutant(
        "a trace of a window shows its first block alone",
        "zoo/inspection/recording.py",
        "if isinstance(layer, BlockedAttention) and recorder.all_weights:",
        "if False:",
        TRACE,
    ),
    Mutant(
        "keys of a single vector keep an axis of queries",
        "zoo/inspection/trace.py",
        'side = "key" if name.rpartition',
        'side = "query" if name.rpartition',
        TRACE,
    ),
    Mutant(
        "equal blocks are drawn one by one",
        "zoo/inspection/architecture.py",
        "if self._signatures.get(group) == signature",
        "if self._signatures.get(group) is signature",
        DIAGRAM,
    ),
    Mutant(
        "masked self-attention is drawn as any other",
        "zoo/inspection/architecture.py",
        'if kwargs.get("use_causal_mask") else "self-attention"',
        'if kwargs.get("causal") else "self-attention"',
        DIAGRAM,
    ),
    Mutant(
        "the term of positions alone holds contents",
        "zoo/inspection/positions.py",
        "(of_content, of_sum - of_content)",
        "(of_content, of_sum)",
        ("tests/zoo/inspection/test_positions.py",),
    ),
]
