"""How attention is computed: `plan` chooses a path by static facts, `run` takes it, and each path is a file.

A path is a function `attend(layer, query, memory, visible, bias, seed, names)` that returns a dict of what
`layer.attend_rows` returns: at least what `names` has, except that kernels and tiles have no weights. A new one is a
file here, and its name in `run`.
"""
