"""Cluster engines: verbs of `core.engine.ClusterEngine` enter, requests to whatever runs the job leave."""
