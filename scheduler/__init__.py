"""Where ranks run: hosts and wishes enter, placements leave.

Pure: gang placement in the tightest network domain, keeping survivors where they are, spares, migration, resizing.
"""

from everstep.scheduler.placement import Host, PlacementError, gang, migrate, replace_nodes, resize, target_for

__all__ = ["Host", "PlacementError", "gang", "migrate", "replace_nodes", "resize", "target_for"]
