"""A cluster in memory: orders and faults enter, steps, checkpoints and worker states leave, all by a manual clock.

Implements `core.engine.ClusterEngine` and `core.progress.ProgressSource`, so that the whole recovery runs in
microseconds and without chance.
"""

from everstep.simulator.cluster import SimCluster
from everstep.simulator.job import SimTraining

__all__ = ["SimCluster", "SimTraining"]
