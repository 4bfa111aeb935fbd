"""From defaults, recipe, file and command line to one resolved run."""
