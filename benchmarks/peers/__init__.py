"""Adapters of other libraries, which run in the environments of these and import only the protocol of this project."""
