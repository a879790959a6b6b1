"""Keeping of a registry: the trash, backups, exports, merging, and runs brought from other registries."""
