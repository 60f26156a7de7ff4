"""The node agent: enters /proc, /sys, the GPU driver, rank records, orders; leaves samples, `/metrics`, workers' ends.

One agent per node. It samples host, GPUs and rank records, each source in a thread with a deadline; gates the samples,
pushes them by remote-write and serves them to Prometheus; and starts, signals and stops workers through a warm parent
process that outlives the agent itself.
"""
