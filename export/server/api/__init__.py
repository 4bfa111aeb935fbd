"""The gRPC and REST APIs, and the services behind both."""
