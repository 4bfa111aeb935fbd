"""A stand-in for `tensorflow_model_server` on the official interfaces; `export.serve` is its command.

Data flows one way. An arrow reads "is used by":

    settings, config_files → embedded (puts all of it together)
    versions → servables → catalogue → handlers → grpc_api, rest_api
    batching → models → loading, warmup → catalogue
    signatures, tensors → inference, examples → handlers

Only `models` and `warmup` need TensorFlow; what carries a request, and what answers it, know nothing of one another.
"""
