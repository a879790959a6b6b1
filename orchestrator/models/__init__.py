"""Model folders: which one a name means, what lies in it, the device that computes, and export."""
