"""How attention is computed: `plan` chooses a path by static facts, `run` takes it.

A path is a function `attend(layer, query, memory, visible, bias, seed, names)` that returns a dict of what
`layer.attend_rows` returns: at least what `names` has, except that kernels and tiles have no weights.
"""
