"""The network's inner arithmetic, where PyTorch's own is slow or wasteful of memory."""
