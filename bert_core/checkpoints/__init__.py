"""Model folders and training states on disk: Hugging Face layout both ways, atomic writes, manifests."""
