"""The demo: real child processes, one injected fault, the evidence of what became of the job.

Enters a `DemoOptions`; leaves a verdict (one JSON object), a report, and no process and no shared-memory file behind.
"""
