"""The shortlist of a translator: the likely translations of each token, by IBM model 1."""
