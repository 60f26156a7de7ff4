"""The words that every room shares; enters nothing, leaves frozen tables and values.

Metric table, fault table, actions, events, topology, engine contract, rank-record layout, manifests, settings and the
remote-write wire format. Imports nothing of ours and, module by module, as little of others' as it can: a training
process imports `everstep.core.rank_record` and gets only the standard library.
"""
