"""Side-by-side measurements; never packaged."""
