"""Planted faults: what is counted, traced and drawn of layers and models."""

from tests.mutants.mutant import Mutant

COST = "tests/zoo/inspection/test_cost.py"
TRACE = "tests/zoo/inspection/test_trace.py"
DIAGRAM = "tests/zoo/inspection/test_diagram.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "a product counts the axes of its result",
        "zoo/inspection/operations.py",
        "return _products(result, inputs[0].shape[-1])",
        "return _products(result, inputs[-1].shape[-1])",
        (f"{COST}::test_the_figures_of_the_course_with_heads",),
    ),
    Mutant(
        "a sum of k terms has k additions",
        "zoo/inspection/operations.py",
        "additions=results * max(terms - 1, 0)",
        "additions=results * terms",
        (f"{COST}::test_the_figures_of_the_course_with_one_head",),
    ),
    Mutant(
        "convolutions multiply the zeros around their inputs",
        "zoo/inspection/operations.py",
        "share = math.prod(parts)",
        "share = 1.0",
        (f"{COST}::test_convolution",),
    ),
    Mutant(
        "weights that two steps share count twice",
        "zoo/inspection/counting.py",
        "        self.weights |= set(new)\n",
        "",
        (f"{COST}::test_models_count_each_weight_once",),
    ),
    Mutant(
        "a recurrence counts one position alone",
        "zoo/inspection/counting.py",
        "operations=self.operations * times,",
        "operations=self.operations,",
        (f"{COST}::test_recurrence",),
    ),
    Mutant(
        "a window sees to one side",
        "zoo/inspection/counting.py",
        "return 2 * int(layer.window) + 1",
        "return int(layer.window) + 1",
        (f"{COST}::test_efficient_attention_costs_less_on_long_sequences",),
    ),
    Mutant(
        "counting leaves its traces in the layer",
        "zoo/inspection/graph.py",
        "                del node_list[length:]",
        "                pass",
        (f"{COST}::test_the_layer_does_not_change",),
    ),
    Mutant(
        "a trace shows the scaled scores as the raw ones",
        "zoo/inspection/recording.py",
        'recorder.record_scores("raw_scores", "query · key", compare(recorder.unscaled, key))',
        'recorder.record_scores("raw_scores", "query · key", compare(query, key))',
        (f"{TRACE}::test_the_steps_of_the_course",),
    ),
    Mutant(
        "counting a layer with a linear path counts all its weights",
        "zoo/inspection/recording.py",
        '{"has_linear_path": getattr(layer, "has_linear_path", None)}',
        "{}",
        (f"{COST}::test_efficient_attention_costs_less_on_long_sequences",),
    ),
    Mutant(
        "a trace does not name the class that overrides a method",
        "zoo/inspection/recording.py",
        'return f"{type(part).__name__}.{method}"',
        "return method",
        (f"{TRACE}::test_what_a_subclass_overrides_is_traced",),
    ),
    Mutant(
        "a trace of a window shows its first block alone",
        "zoo/inspection/recording.py",
        "if not recorder.all_weights:",
        "if True:",
        (f"{TRACE}::test_windows_show_all_pairs",),
    ),
    Mutant(
        "keys of a single vector keep an axis of queries",
        "zoo/inspection/trace.py",
        'side = "key" if name.rpartition',
        'side = "query" if name.rpartition',
        (f"{TRACE}::test_a_single_vector",),
    ),
    Mutant(
        "equal blocks are drawn one by one",
        "zoo/inspection/architecture.py",
        "if self._signatures.get(group) == signature",
        "if self._signatures.get(group) is signature",
        (f"{DIAGRAM}::test_blocks_of_a_transformer",),
    ),
    Mutant(
        "masked self-attention is drawn as any other",
        "zoo/inspection/architecture.py",
        'if kwargs.get("use_causal_mask") else "self-attention"',
        'if kwargs.get("causal") else "self-attention"',
        (f"{DIAGRAM}::test_blocks_of_a_transformer",),
    ),
    Mutant(
        "the term of positions alone holds contents",
        "zoo/inspection/positions.py",
        "(of_content, of_sum - of_content)",
        "(of_content, of_sum)",
        ("tests/zoo/inspection/test_positions.py::test_four_terms_of_a_layer_sum_up_to_its_scores",),
    ),
    Mutant(
        "the reach is that of one number of the last output",
        "zoo/inspection/reach.py",
        "number = ops.eye(shape[-1], dtype=output.dtype)",
        "number = ops.eye(shape[-1], dtype=output.dtype)[:1]",
        ("tests/zoo/inspection/test_reach.py::test_norms_of_derivatives",),
    ),
    Mutant(
        "an output reads what reads it",
        "zoo/inspection/paths.py",
        "max(axis=-1).T",
        "max(axis=-1)",
        ("tests/zoo/inspection/test_paths.py::test_what_each_output_reads",),
    ),
    Mutant(
        "the step of a projection takes another step",
        "zoo/inspection/inside.py",
        "origins = frozenset(named) or self._origins_of([tensor])",
        "origins = self._origins_of([tensor])",
        (f"{DIAGRAM}::test_steps_of_an_attention_layer",),
    ),
]
