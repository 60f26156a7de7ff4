"""The three parts of the overhead bench: hooks of one step, a node agent at 1 Hz, a training loop with and without.

Each part measures in child processes of its own and returns plain numbers; `bench/overhead.py` holds the goals.
"""
