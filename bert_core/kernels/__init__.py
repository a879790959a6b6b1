"""Kernels: arithmetic of the layers where PyTorch's own is slow or needs much memory."""
