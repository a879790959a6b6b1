"""Model folders: which one a name means, what lies in it, and the configuration and size that a spec describes."""
