"""Prometheus recording and alerting rules, and Alertmanager's routes, built from the metric and fault tables.

Enters: `core.metrics`, `core.faults`. Leaves: the YAML under `generated/`, which the servers load as it is.
`python -m everstep.alertrules --write` renews the files, `--check` fails when they are stale.
"""
