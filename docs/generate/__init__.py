"""What `make docs` makes of the repository, beside the pages that people write."""
