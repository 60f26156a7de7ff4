"""The one long-running process: pushes and HTTP requests enter, incidents, recoveries, pages and metrics leave.

`ingest` feeds `window_store` and the job `views`; `monitor` runs the detectors, opens incidents and hands them to the
recovery controller; `storage` keeps what must survive; `app` answers; `wiring` builds all of it from the settings and
`server` runs it.
"""
