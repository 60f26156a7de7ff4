"""The callback that a training loop imports: hook calls enter, a rank record in shared memory leaves.

Standard library and `everstep.core` only; torch is never imported here. Nothing raised inside a hook reaches the loop.
"""

from everstep.trainer_integration.callback import EverstepCallback

__all__ = ["EverstepCallback"]
