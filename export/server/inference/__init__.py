"""Runs requests on a loaded model, from request message to response message."""
