"""How a trained model is served: latency, throughput, changes of version, memory, hostile requests."""
