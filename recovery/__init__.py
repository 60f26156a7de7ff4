"""From root cause to a job that steps again: an incident with ranked causes enters, verified and audited actions leave.

`policy` decides (pure), `guardrails` says no (pure), `resume` picks the checkpoint (pure), `canary` judges the first
steps (pure); `controller` runs the `steps` through a `ClusterEngine`; `store` keeps what must survive.
"""
