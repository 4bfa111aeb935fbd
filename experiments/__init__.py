"""Each claim of the introductions to attention, shown: `python -m experiments` lists them, with a name it runs one."""
