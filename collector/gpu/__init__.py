"""GPUs through NVML: enters the driver's library and the kernel log, leave samples and Xid counts of each physical GPU.

`nvml` holds the session, `inventory` finds the devices, `device` reads one, `fields` says what is read, `xid` counts
error events, `expected` remembers how many there should be, `group` is what the agent sees.
"""
