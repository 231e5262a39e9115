#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""canary_bench: what --canary 1/N takes from a run. A command, not a test: timings do not belong into CI. Runs
the same job alternately without and with canaries and prints, of each run, seconds from start to exit and
seconds of CPU, and at the end the medians' ratios. On a machine that others use, the CPU's is the one to read.

  canary_bench.py BINARY MODEL SHARD [--rows 300] [--max-tokens 48] [--pairs 3] [--canary 1/100]

SHARD is a .jsonl with a field "prompt"; it is repeated, with a number before each prompt, until there are enough
rows."""
import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import tempfile
import time


def measure(args, manifest, canary):
    with tempfile.TemporaryDirectory() as out:
        command = [args.binary, "run", manifest, "--model", args.model, "--out", out, "--max-tokens",
                   args.max_tokens, "--ignore-eos", "--temperature", 0, "--canary", canary]
        cpu, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run([str(c) for c in command], check=True, stderr=subprocess.DEVNULL)
        wall = time.monotonic() - wall
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime
        got = subprocess.run([args.binary, "status", out, "--json"], check=True, capture_output=True, text=True)
        status = json.loads(got.stdout)["datasets"][0]
    print(f"canary {canary}: {wall:.1f} s, {cpu:.1f} s of CPU, {status['completion_tokens']} tokens, "
          f"{status['canaries_checked']} of {status['rows_done']} rows computed again", flush=True)
    return wall, cpu


def main():
    parser = argparse.ArgumentParser()
    for name in ("binary", "model", "shard"):
        parser.add_argument(name)
    for name, value in (("rows", 300), ("max-tokens", 48), ("pairs", 3)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--canary", default="1/100")
    args = parser.parse_args()
    lines = pathlib.Path(args.shard).read_text(encoding="utf-8").splitlines()
    prompts = [json.loads(line)["prompt"] for line in lines]
    with tempfile.TemporaryDirectory() as folder:
        shard, manifest = pathlib.Path(folder, "bench.jsonl"), pathlib.Path(folder, "bench.json")
        shard.write_text("".join(json.dumps({"id": i, "prompt": f"({i}) {prompts[i % len(prompts)]}"}) + "\n"
                                 for i in range(args.rows)), encoding="utf-8")
        manifest.write_text(json.dumps({"dataset": "bench", "shards": [str(shard)]}), encoding="utf-8")
        got = {"0": [], args.canary: []}
        for i in range(2 * args.pairs):
            canary = ("0", args.canary)[(i + i // 2) % 2]  # each first in turn
            got[canary].append(measure(args, manifest, canary))
    wall, cpu = ([statistics.median(run[k] for run in got[c]) for c in ("0", args.canary)] for k in (0, 1))
    print(f"with --canary {args.canary}: {wall[1] / wall[0]:.3f} of the time, {cpu[1] / cpu[0]:.3f} of the CPU time")


if __name__ == "__main__":
    main()
