"""The table agrees with the fault table and with itself."""

from __future__ import annotations

from everstep.core.faults import FAULT_BY_ID
from everstep.rca.facts import Fact
from everstep.rca.rules import COUNTERS, EXPECTED, EXPLAINS, OTHERWISE, SUPPORTS, TELLTALE, UNEXPLAINED


def test_every_rule_names_a_known_fault() -> None:
    named = {rule.fault for rule in SUPPORTS} | {rule.fault for rule in EXPLAINS} | {fault for fault, _, _ in COUNTERS}
    assert named | EXPECTED.keys() | TELLTALE.keys() <= FAULT_BY_ID.keys()


def test_supports_are_positive_and_unique() -> None:
    assert all(rule.llr > 0 for rule in SUPPORTS)
    keys = [(rule.fact, rule.fault, rule.root) for rule in SUPPORTS]
    assert len(keys) == len(set(keys))


def test_victims_are_cheaper_to_leave_unexplained_than_culprits() -> None:
    assert UNEXPLAINED[Fact.PEER_LOST] < UNEXPLAINED[Fact.KILLED] < UNEXPLAINED[Fact.NODE_REFUSED]
    assert min(UNEXPLAINED.values()) >= OTHERWISE


def test_no_fact_accuses_a_rank_that_only_lost_its_peer() -> None:
    assert {rule.fault for rule in SUPPORTS if rule.fact is Fact.PEER_LOST} == {"UNKNOWN"}
