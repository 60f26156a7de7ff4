"""The node agent: enters /proc, rank records and the controller's orders; leaves samples, `/metrics`, workers' ends.

One agent per node. It samples the host and the rank records, pushes them by remote-write, serves them to Prometheus,
and starts, signals and stops workers through a warm parent process that outlives the agent itself.
"""
