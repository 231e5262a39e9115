# SPDX-License-Identifier: Apache-2.0
"""jobdir: one dataset job in a folder of its own: shards, a manifest, runs of it and what they left."""
import json
import subprocess

DONE, FAILED, USAGE, REJECTS, INTERRUPTED, CANARY = range(6)


def jsonl(rows):
    return b"".join(json.dumps(r, ensure_ascii=False).encode() + b"\n" for r in rows)


class Job:
    """Shards are written as given: a list of rows, or bytes. More keys go into the manifest."""

    def __init__(self, headrace, folder, model, rows, dataset="d", **manifest):
        self.headrace, self.folder, self.model, self.dataset = headrace, folder, model, dataset
        folder.mkdir(parents=True, exist_ok=True)
        self.shards = []
        for i, shard in enumerate(rows if isinstance(rows, tuple) else (rows,)):
            name = f"{dataset}-{i}.jsonl"
            (folder / name).write_bytes(shard if isinstance(shard, bytes) else jsonl(shard))
            self.shards.append(name)
        self.manifest = folder / f"{dataset}.json"
        self.write_manifest(**manifest)

    def write_manifest(self, **manifest):
        m = {"dataset": self.dataset, "shards": self.shards, **manifest}
        self.manifest.write_text(json.dumps(m), encoding="utf-8")

    def call(self, *args, out="out", timeout=120):
        return self.headrace("run", self.manifest, "--model", self.model, "--out", self.folder / out, *args,
                             timeout=timeout)

    def run(self, *args, out="out", code=DONE, timeout=120):
        got = self.call(*args, out=out, timeout=timeout)
        assert got.returncode == code, got.stderr
        return got

    def path(self, name, out="out"):
        return self.folder / out / self.dataset / name

    def lines(self, name="raw_responses.jsonl", out="out"):
        path = self.path(name, out)
        return path.read_bytes().split(b"\n")[:-1] if path.exists() else []

    def rows(self, out="out"):
        return [json.loads(line) for line in self.lines(out=out)]

    def by_id(self, out="out"):
        rows = self.rows(out)
        assert len({(json.dumps(r["id"]), r.get("occurrence"), r["sample"]) for r in rows}) == len(rows)
        return {r["id"]: r for r in rows}

    def rejects(self, out="out"):
        return [json.loads(line) for line in self.lines("rejects.jsonl", out)]

    def status(self, out="out"):
        got = self.headrace("status", self.folder / out, "--json")
        assert got.returncode == DONE, got.stderr
        return {d["dataset"]: d for d in json.loads(got.stdout)["datasets"]}[self.dataset]

    def sorted_lines(self, *args, out, code=DONE, timeout=120):
        """The rows of a run with these flags, in an order that does not depend on it."""
        self.run(*args, out=out, code=code, timeout=timeout)
        return sorted(self.lines(out=out))


def without_repetition(db):
    """Takes from a state.db what its format 3 added."""
    for table, column in (("done", "is_repetitive"), ("aside", "is_repetitive"), ("runs", "rows_repetitive"),
                          ("tally", "rows_repetitive")):
        db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")


def cpu_masks(headrace):
    """The masks of the instruction-set tiers that this machine has: 0 is the reference alone."""
    text = subprocess.run([headrace.path, "--version"], capture_output=True, text=True, check=True).stdout
    line = next(s for s in text.splitlines() if "this cpu" in s)
    return [0] + [m for name, m in (("avx2", 1), ("avx512", 3)) if name in line]
