"""Grafana dashboards as code: declarations of boards in, Grafana's JSON out (`json/`, checked in).

Enters: names of metrics (`core.metrics`) and of recording rules. Leaves: one JSON file a board.
`python -m everstep.dashboards --write` renews the files, `--check` fails when they are stale.
"""
