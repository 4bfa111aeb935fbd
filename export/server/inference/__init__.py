"""Requests answered by a loaded model, message in, message out."""
