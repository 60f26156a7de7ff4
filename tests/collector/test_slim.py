"""What an agent's libraries load for terminals only stays out of it, and comes back for everybody else."""

from __future__ import annotations

import subprocess
import sys

from everstep.collector.slim import idle_code, without_terminals

PROGRAM = """
import sys
from everstep.collector.slim import share_arenas, without_terminals
share_arenas()
with without_terminals():
    import everstep.collector.agent
print("rich" in sys.modules)
import rich
print(rich.__name__)
"""


def test_an_agent_loads_nothing_for_a_terminal_and_others_still_find_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    ).stdout.split()
    assert done == ["False", "rich"]


def test_what_is_loaded_already_stays() -> None:
    import rich

    with without_terminals():
        assert sys.modules["rich"] is rich
    assert sys.modules["rich"] is rich


MAPS = """\
55d0-55d1 r--p 00000000 08:01 11 /usr/bin/python3.11
Private_Dirty:         0 kB
7f00000000-7f00002000 r--p 00000000 08:01 12 /usr/lib/lib one.so.3
Size:                  8 kB
Private_Clean:         8 kB
Private_Dirty:         0 kB
7f00002000-7f00003000 r--p 00002000 08:01 12 /usr/lib/lib one.so.3
Size:                  4 kB
Private_Dirty:         4 kB
7f00003000-7f00004000 rw-p 00003000 08:01 12 /usr/lib/lib one.so.3
Private_Dirty:         0 kB
7f00005000-7f00006000 r-xp 00000000 00:00 0
Private_Dirty:         0 kB
7f00007000-7f00008000 r-xp 00000000 08:01 13 /venv/x.cpython-311-x86_64-linux-gnu.so
Private_Dirty:         0 kB
"""


def test_only_clean_code_of_libraries_may_be_dropped() -> None:
    assert list(idle_code(MAPS)) == [(0x7F00000000, 0x2000), (0x7F00007000, 0x1000)]
    assert list(idle_code("")) == []


SETTLED = """
import hashlib, json, zlib
from everstep.collector.slim import settle
def resident():
    return int(open("/proc/self/statm").read().split()[1])
import cramjam, pydantic_core, ssl
before = resident()
settle()
assert resident() < before, (resident(), before)
packed = cramjam.snappy.compress_raw(b"x" * 1000)
assert bytes(cramjam.snappy.decompress_raw(packed)) == b"x" * 1000
assert hashlib.sha256(b"").hexdigest().startswith("e3b0c442")
assert json.loads("[1.5]") == [1.5] and zlib.crc32(b"a") == 0xE8B7BE43
ssl.create_default_context()
print("ok")
"""


def test_a_settled_process_is_smaller_and_works_on() -> None:
    done = subprocess.run([sys.executable, "-c", SETTLED], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["ok"], done.stderr
