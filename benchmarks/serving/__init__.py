"""What serving a trained model shows: latency, throughput, changes of version, memory, requests that mean no good."""
