# SPDX-License-Identifier: Apache-2.0
"""rooms: who may include whom (the table of rooms in docs/design.md), read from the #include lines.

The rule is what keeps the engine free of files and JSON, and the job free of pages and devices. Each
third-party header stands in one file, so that a library can be replaced by rewriting that file."""
import collections
import pathlib
import re

import pytest

SRC = pathlib.Path(__file__).resolve().parent.parent / "src"
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)

# room -> rooms, or single headers, that it may include besides itself
MAY_INCLUDE = {
    "base": [],
    "text": ["base"],
    "job": ["base"],
    "kv": ["base"],
    "schedule": ["base", "kv"],
    "backend": ["base"],
    "comm": ["base", "backend/backend.h"],
    "model": ["base", "backend/backend.h", "comm/comm.h"],
    "engine": ["base", "kv", "schedule", "backend", "comm", "model"],
    "cmd": ["base", "text", "job", "kv", "schedule", "backend", "comm", "model", "engine"],
}
# headers of rooms above that a room must do without all the same, and why
MAY_NOT_INCLUDE = {
    "kv": {"base/clock.h": "time is an argument"},
    "schedule": {"base/clock.h": "time is an argument, so that it runs in a simulator"},
    "engine": {"base/json.h": "the engine knows nothing of JSON",
               "base/jscan.h": "the engine knows nothing of JSON"},
}
THIRD_PARTY = ["jansson.h", "uv.h", "sqlite3.h", "zlib.h", "zstd.h"]
INTRINSICS = ["immintrin.h", "x86intrin.h", "cpuid.h", "arm_neon.h"]
GENERATED = ["vcs.h"]  # made by meson, in no room


def files():
    return sorted(p for p in SRC.rglob("*") if p.suffix in (".c", ".h", ".inc"))


def includes(path):
    """(quoted, header) of each #include line."""
    text = path.read_text(encoding="utf-8")
    return [(quote == '"', header) for quote, header in INCLUDE.findall(text)]


def offence(room, header):
    """Why a file of `room` may not include this header of ours, or None."""
    if header in GENERATED:
        return None
    other = header.split("/")[0]
    if other not in MAY_INCLUDE:
        return "is not written as room/file.h"
    if header in MAY_NOT_INCLUDE.get(room, {}):
        return MAY_NOT_INCLUDE[room][header]
    if other == room or other in MAY_INCLUDE[room] or header in MAY_INCLUDE[room]:
        if header.endswith("_int.h") and other != room:
            return f"is private to {other}"
        return None
    return f"{room} may include {', '.join(MAY_INCLUDE[room]) or 'nothing of ours'}"


def test_a_room_includes_only_what_it_may():
    found = []
    for path in files():
        room = path.relative_to(SRC).parts[0]
        assert room in MAY_INCLUDE, f"{path}: no such room"
        for quoted, header in includes(path):
            why = offence(room, header) if quoted else None
            if why:
                found.append(f"{path.relative_to(SRC)}: {header}: {why}")
    assert not found, "\n".join(found)


def test_each_third_party_header_stands_in_one_file():
    users = collections.defaultdict(set)
    for path in files():
        for quoted, header in includes(path):
            if not quoted:
                users[header].add(str(path.relative_to(SRC)))
    wrong = {h: sorted(users[h]) for h in THIRD_PARTY if len(users[h]) != 1}
    assert not wrong, wrong


def test_intrinsics_stay_in_the_cpu_backend():
    found = [f"{p.relative_to(SRC)}: {header}" for p in files() for _, header in includes(p)
             if header in INTRINSICS and p.relative_to(SRC).parts[:2] != ("backend", "cpu")]
    assert not found, found


@pytest.mark.parametrize("room, header, allowed", [
    ("base", "base/buf.h", True),
    ("base", "job/store.h", False),
    ("job", "text/tokenizer.h", False),
    ("text", "job/loop.h", False),
    ("schedule", "kv/pages.h", True),
    ("kv", "schedule/schedule.h", False),
    ("kv", "base/clock.h", False),
    ("model", "backend/backend.h", True),
    ("model", "backend/cpu/cpu.h", False),
    ("engine", "job/store.h", False),
    ("engine", "base/json.h", False),
    ("cmd", "engine/engine.h", True),
    ("cmd", "text/jinja_int.h", False),
    ("base", "buf.h", False),
])
def test_the_rule_can_say_no(room, header, allowed):
    assert (offence(room, header) is None) == allowed
