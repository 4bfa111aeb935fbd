"""Translating beside the peers: trained and exported beside CTranslate2 with the same weights, untrained beside all."""
