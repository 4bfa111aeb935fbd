"""All queries at once."""


def attend(layer, query, memory, visible, bias, seed, names):
    """Returns those results of `layer.attend_rows` that `names` has."""
    results = layer.attend_rows(query, memory, visible, bias, seed)
    return {name: results[name] for name in names}
