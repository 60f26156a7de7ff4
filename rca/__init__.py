"""Why it broke: anomalies, placements and topology enter, ranked root causes with a chain of evidence leave.

Pure and deterministic. `facts` says what an anomaly means, `rules` is the table of what supports what, `hypotheses`
makes the suspects, `rank` scores them. Odd input (unknown entities, contradictions, nothing at all) lowers the
confidence and never raises.
"""

from everstep.rca.evidence import CauseEvidence
from everstep.rca.rank import rank_causes

__all__ = ["CauseEvidence", "rank_causes"]
