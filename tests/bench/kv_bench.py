#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kv_bench: what the radix cache, the host tier and the scheduler are worth, measured side by side.

Every comparison alternates A and B in one call and prints ratios, because absolute times are noise on a
shared machine. Nothing here is a test: it prints numbers for docs/performance.md.

    tests/bench/kv_bench.py --bin build/headrace --model MODEL [shared] [quarter] [usage] [two] [lengths]

shared   64 rows behind one long system prompt: prompt tokens computed against ideal sharing of whole pages
quarter  a KV pool of a quarter of the need: equal rows, recomputed tokens, tok/s per mean running sequence
         against a big pool whose --max-running is the small one's rounded mean running
usage    20 pools' worth of rows with log-normal lengths: mean KV usage of running sequences until 98 % of rows
two      two datasets in one run against one after the other, loading not counted
lengths  rows of log-normal lengths that nobody knows, against the same with --lengths-from
"""
import argparse
import json
import math
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

WORDS = ("river wheel stone mill water grain wind sail bridge field cloud iron wood glass paper light "
         "shadow garden winter market").split()


def text(rng, n_words):
    return " ".join(rng.choice(WORDS) for _ in range(n_words))


class Job:
    """Runs headrace on rows made here, in a folder that goes away."""

    def __init__(self, args):
        self.args = args
        self.dir = Path(tempfile.mkdtemp(prefix="kv_bench"))
        self.n = 0

    def manifest(self, name, rows, **sampling):
        shard = self.dir / f"{name}.jsonl"
        shard.write_text("".join(json.dumps(r) + "\n" for r in rows))
        path = self.dir / f"{name}.json"
        path.write_text(json.dumps({"dataset": name, "shards": [str(shard)], "sampling": {"temperature": 0, **sampling}}))
        return path

    def run(self, manifests, *flags):
        self.n += 1
        out = self.dir / f"out{self.n}"
        cmd = [self.args.bin, "run", *map(str, manifests), "--model", self.args.model, "--out", str(out), *map(str, flags)]
        done = subprocess.run(cmd, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(cmd)}\n{done.stderr}")
        status = subprocess.run([self.args.bin, "status", str(out), "--json"], stdout=subprocess.PIPE, text=True, check=True)
        data = json.loads(status.stdout)["datasets"]
        lines = {d["dataset"]: sorted((out / d["dataset"] / "raw_responses.jsonl").read_text().splitlines()) for d in data}
        return data, lines, done.stderr, out


def lognormal_rows(rng, n, mean, prefix):
    rows = []
    for i in range(n):
        length = max(4, min(int(rng.lognormvariate(math.log(mean) - 0.32, 0.8)), 8 * mean))
        rows.append({"id": f"{prefix}{i}", "prompt": text(rng, rng.randint(10, 40)), "max_tokens": length, "ignore_eos": True})
    return rows


def shared(job):
    rng = random.Random(1)
    system = text(rng, 450)
    rows = [{"id": f"s{i}", "messages": [{"role": "system", "content": system}, {"role": "user", "content": text(rng, 30)}]}
            for i in range(64)]
    m = job.manifest("shared", rows, max_tokens=16, ignore_eos=True)
    m.write_text(m.read_text().replace('"sampling"', '"output": {"token_ids": true}, "sampling"'))
    for title, flags in (("all at once", ("--max-running", 64)),
                         ("a pool for four rows, host tier", ("--max-running", 64, "--kv-tokens", 1600, "--hicache-size", "2G"))):
        data, lines, _, _ = job.run([m], *flags)
        prompts = [json.loads(line)["prompt_token_ids"] for line in lines["shared"]]
        pages = {tuple(p[:i]) for p in prompts for i in range(16, len(p), 16)}  # the last token is always computed
        ideal = 16 * len(pages) + sum((len(p) - 1) % 16 + 1 for p in prompts)
        d = data[0]
        print(f"shared, {title}: {sum(map(len, prompts))} prompt tokens, {d['prefill_tokens_total']} computed, ideal {ideal} "
              f"({d['prefill_tokens_total'] / ideal - 1:+.2%}), {d['recomputed_tokens_total']} recomputed, "
              f"{d['preemptions']} preemptions", flush=True)


def quarter(job):
    rng = random.Random(2)
    rows = lognormal_rows(rng, job.args.rows, 120, "q")
    m = job.manifest("quarter", rows)
    running = 32
    need = running * 2 * (120 + 60)
    small = ("--max-running", running, "--kv-tokens", need // 4, "--hicache-size", "3G")
    ratios = []
    for i in range(job.args.repeat):
        a, rows_a, _, _ = job.run([m], *small)
        mean = a[0]["mean_running"]
        b, rows_b, _, _ = job.run([m], "--max-running", max(1, round(mean)), "--kv-tokens", 4 * need)
        per_a, per_b = a[0]["tok_s"] / mean, b[0]["tok_s"] / b[0]["mean_running"]
        ratios.append(per_a / per_b)
        print(f"quarter {i + 1}: rows {'equal' if rows_a == rows_b else 'DIFFER'}; small pool {a[0]['tok_s']:.1f} tok/s at "
              f"{mean:.2f} running, {a[0]['preemptions']} preemptions, {a[0]['recomputed_tokens_total']} recomputed; big pool "
              f"{b[0]['tok_s']:.1f} tok/s at {b[0]['mean_running']:.2f}; ratio per running {ratios[-1]:.3f}", flush=True)
    print(f"quarter: median ratio {sorted(ratios)[len(ratios) // 2]:.3f}")


def usage(job):
    rng = random.Random(3)
    pool = 4096
    rows = []
    total = 0
    while total < 20 * pool:
        rows += lognormal_rows(rng, 1, 200, f"u{len(rows)}-")
        total += rows[-1]["max_tokens"] + 60
    m = job.manifest("usage", rows)
    data, _, _, out = job.run([m], "--max-running", 64, "--kv-tokens", pool, "--hicache-size", "3G")
    used = []
    for line in (out / "usage" / "run.log").read_text().splitlines():
        at = re.search(r"token usage: ([0-9.]+).*rows: (\d+)/(\d+)", line)
        if at and int(at[2]) < 0.98 * len(rows):
            used.append(float(at[1]))
    used = used[1:]  # the first line tells of an empty pool that is being filled
    print(f"usage: {len(rows)} rows, {total / pool:.1f} pools' worth; {len(used)} samples until 98 % of the rows: mean KV usage "
          f"{sum(used) / max(1, len(used)):.3f}, least {min(used, default=0):.2f}; mean running {data[0]['mean_running']:.1f}, "
          f"{data[0]['preemptions']} preemptions, {data[0]['recomputed_tokens_total']} recomputed", flush=True)


def active_seconds(data):
    return sum(d["completion_tokens"] / d["tok_s"] for d in data)


def two(job):
    rng = random.Random(4)
    a = job.manifest("two-a", lognormal_rows(rng, 40, 120, "a"))
    b = job.manifest("two-b", lognormal_rows(rng, 40, 120, "b"))
    for i in range(job.args.repeat):
        data_a, rows_1, _, _ = job.run([a], "--max-running", 32)
        data_b, rows_2, _, _ = job.run([b], "--max-running", 32)
        apart = active_seconds(data_a + data_b)
        _, rows_3, log_ab, _ = job.run([a, b], "--max-running", 32)
        # Both datasets' clocks run at once; the run lasts from the first admission to the last row.
        said = re.search(r"all datasets: .* in (?:(\d+)h)?(?:(\d+)m)?(?:([0-9.]+)s)?,", log_ab)
        together = 3600 * int(said[1] or 0) + 60 * int(said[2] or 0) + float(said[3] or 0)
        same = {**rows_1, **rows_2} == rows_3
        print(f"two {i + 1}: apart {apart:.1f} s, together {together:.1f} s, ratio {together / apart:.3f}, rows "
              f"{'equal' if same else 'DIFFER'}", flush=True)


def lengths(job):
    rng = random.Random(5)
    # A stop id that does not come: so nothing but the earlier run tells how long a row will be.
    m = job.manifest("lengths", lognormal_rows(rng, 4 * job.args.rows // 3, 120, "l"), stop_token_ids=[49151])
    ratios = []
    known = []
    for i in range(job.args.repeat):
        a, rows_a, _, out = job.run([m], "--max-running", 32)
        b, rows_b, _, _ = job.run([m], "--max-running", 32, "--lengths-from", known[0] if known else out)
        known.append(out)
        ratios.append(active_seconds(b) / active_seconds(a))
        print(f"lengths {i + 1}: unknown {active_seconds(a):.1f} s at {a[0]['mean_running']:.1f} running, known "
              f"{active_seconds(b):.1f} s at {b[0]['mean_running']:.1f}, ratio {ratios[-1]:.3f}, rows "
              f"{'equal' if rows_a == rows_b else 'DIFFER'}", flush=True)
    print(f"lengths: median ratio {sorted(ratios)[len(ratios) // 2]:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=["shared", "quarter", "usage", "two", "lengths"])
    parser.add_argument("--bin", default="build/headrace")
    parser.add_argument("--model", required=True)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rows", type=int, default=120, help="of `quarter`")
    args = parser.parse_args()
    for name in args.what:
        {"shared": shared, "quarter": quarter, "usage": usage, "two": two, "lengths": lengths}[name](Job(args))


if __name__ == "__main__":
    main()
