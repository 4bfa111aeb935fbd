"""Translating with an exported model, beside CTranslate2 with the same weights."""
