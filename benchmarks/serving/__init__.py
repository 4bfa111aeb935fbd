"""Measurements of a served model: latency, throughput, changes of version, memory, hostile requests."""
