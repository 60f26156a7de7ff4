"""Checkpoints in two tiers: shards in the memory of two nodes, whole checkpoints on disk; state enters and comes back
only through a manifest whose checksums agree.
"""
