"""How attention is computed: `plan` chooses a path by static facts, and `run` takes it.

A path is a function `attend(layer, query, memory, visibility, bias, seed, names)` that returns a dict with the results
of `layer.attend_rows`: at least those in `names`, but fused kernels and tiles return no weights.
"""
