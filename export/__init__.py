"""SavedModel export, the embedded model server and its client."""
