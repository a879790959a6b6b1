"""Model folders: which one a name means, what lies in it, the configuration that a spec describes."""
