"""Where the time of a training step goes: counters of the ranks enter, a budget and recoverable seconds leave."""

from everstep.tuning.step_budget import PhaseCounters, RankBudget, StepBudget, step_budget

__all__ = ["PhaseCounters", "RankBudget", "StepBudget", "step_budget"]
