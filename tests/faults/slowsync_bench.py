#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""slowsync_bench: what fdatasync and fsync slowed by 500 ms take from decoding. A command, not a test:
timings do not belong into CI. Runs the same job alternately without and with the slow library and
prints tok/s (headrace's own, load not counted) of each run, and the medians' ratio.

  slowsync_bench.py BINARY MODEL SHARD [--rows 64] [--max-tokens 128] [--pairs 3] [--ms 500]

SHARD is a .jsonl with a field "prompt"."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile


def tok_s(args, folder, env):
    manifest = folder / "bench.json"
    manifest.write_text(json.dumps({"dataset": "bench", "shards": [str(pathlib.Path(args.shard).resolve())],
                                    "prompt": "prompt", "id": "no such field"}), encoding="utf-8")
    with tempfile.TemporaryDirectory(dir=folder) as out:
        command = [args.binary, "run", manifest, "--model", args.model, "--out", out, "--limit", args.rows,
                   "--max-tokens", args.max_tokens, "--ignore-eos", "--temperature", 0]
        subprocess.run([str(c) for c in command], check=True, stderr=subprocess.DEVNULL, env={**os.environ, **env})
        got = subprocess.run([args.binary, "status", out, "--json"], check=True, capture_output=True, text=True)
        return json.loads(got.stdout)["datasets"][0]["tok_s"]


def main():
    parser = argparse.ArgumentParser()
    for name in ("binary", "model", "shard"):
        parser.add_argument(name)
    for name, value in (("rows", 64), ("max-tokens", 128), ("pairs", 3), ("ms", 500)):
        parser.add_argument("--" + name, type=int, default=value)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temp:
        folder = pathlib.Path(temp)
        library = folder / "slowsync.so"
        source = pathlib.Path(__file__).with_name("slowsync.c")
        subprocess.run(["cc", "-O1", "-fPIC", "-shared", "-o", library, source], check=True)
        slow = {"LD_PRELOAD": str(library), "FAULT_SYNC_MS": str(args.ms)}
        speeds = {"plain": [], "slow": []}
        for _ in range(args.pairs):
            for name, env in (("plain", {}), ("slow", slow)):
                speeds[name].append(tok_s(args, folder, env))
                print(f"{name} {speeds[name][-1]:.1f} tok/s", flush=True)
    plain, slowed = (statistics.median(speeds[k]) for k in ("plain", "slow"))
    print(f"median {plain:.1f} plain, {slowed:.1f} with syncs of {args.ms} ms: {100 * (slowed / plain - 1):+.1f} %")


if __name__ == "__main__":
    main()
