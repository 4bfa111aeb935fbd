"""Experiments that check claims of the introductions to attention: `python -m experiments` lists them."""
