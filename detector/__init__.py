"""What is not normal: windows and values enter, scores and anomalies with onset intervals leave.

Pure over arrays and values: no I/O, no clock, no threads. Peers are the gate for slow ranks; the robust baseline and
the isolation forest are votes that travel as evidence. Deadlines, process states, silence and non-finite numbers have
one module each.
"""
