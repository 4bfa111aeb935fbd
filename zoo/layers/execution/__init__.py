"""How attention is computed: `plan` chooses a path by static facts, `run` takes it, and each path is a file.

A path is a function `attend(layer, query, memory, visible, bias, seed, names)` that returns those results of
`layer.attend_rows` that `names` has, a dict. A new one is a file here, and its name in `run`.
"""
