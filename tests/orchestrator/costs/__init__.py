"""Tests of `orchestrator.costs`."""
