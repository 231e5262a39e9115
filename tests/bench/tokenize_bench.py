#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tokenize_bench: headrace's tokenizer beside Hugging Face `tokenizers`, one thread each, alternating.

    tests/bench/tokenize_bench.py --bin build/headrace [--english FILE...] [--code FILE...] TOKENIZER_JSON...

English and code are files of text; their lines are grouped into texts of about 2 kB, as prompts are. The default is
what every Debian with Python has: the licences and this repository's pages; the standard library's sources. headrace
is timed as a process that reads JSON lines and writes ids, less the same with one text, so JSON counts against it;
the reference is timed inside of Python, around encode_batch. Prints MB/s and ratios; nothing here is a test."""
import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
ROOT = Path(__file__).resolve().parents[2]


def texts(paths, limit):
    out, piece, n = [], [], 0
    for path in paths:
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines(keepends=True)
        except (UnicodeDecodeError, OSError):
            continue
        for line in lines:
            piece.append(line)
            n += len(line)
            if n >= 2000:
                out.append("".join(piece))
                piece, n = [], 0
        if sum(map(len, out[-1:])) and sum(map(len, out)) > limit:
            break
    return out


def headrace_s(args, tokenizer, batch):
    """Seconds for these texts."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        f.write("".join(json.dumps({"text": t}) + "\n" for t in batch))
        f.flush()
        begin = time.perf_counter()
        with open(f.name, "rb") as stdin:
            done = subprocess.run([args.bin, "tokenize", "--tokenizer", tokenizer], stdin=stdin, stdout=subprocess.DEVNULL)
        if done.returncode:
            sys.exit(f"{args.bin} tokenize --tokenizer {tokenizer} failed")
        return time.perf_counter() - begin


def reference_s(tok, batch):
    begin = time.perf_counter()
    tok.encode_batch(batch, add_special_tokens=False)
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokenizers", nargs="+")
    parser.add_argument("--bin", default="build/headrace")
    parser.add_argument("--english", nargs="+")
    parser.add_argument("--code", nargs="+")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--mb", type=float, default=3, help="text of each kind at most")
    args = parser.parse_args()
    from tokenizers import Tokenizer
    english = args.english or sorted([*Path("/usr/share/common-licenses").glob("*"), *ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
    code = args.code or sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    kinds = {"English": texts(english, args.mb * 1e6), "code": texts(code, args.mb * 1e6)}
    for path in args.tokenizers:
        tok = Tokenizer.from_file(path)
        for kind, batch in kinds.items():
            size = sum(len(t.encode()) for t in batch) / 1e6
            ratios, ours, theirs = [], [], []
            for _ in range(args.repeat):
                ours.append(max(1e-9, headrace_s(args, path, batch) - headrace_s(args, path, batch[:1])))
                theirs.append(reference_s(tok, batch))
                ratios.append(theirs[-1] / ours[-1])
            print(f"{path}: {kind} {size:.1f} MB: headrace {size / min(ours):.1f} MB/s, tokenizers {size / min(theirs):.1f} MB/s, "
                  f"ratio {sorted(ratios)[len(ratios) // 2]:.1f} ({min(ratios):.1f} to {max(ratios):.1f})", flush=True)


if __name__ == "__main__":
    main()
