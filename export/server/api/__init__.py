"""The two doors for requests, gRPC and REST, and the services behind both."""
