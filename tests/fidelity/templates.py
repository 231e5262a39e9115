#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chat templates against the reference: every case of the conformance kit through `headrace render --raw`.

Usage: templates.py BINARY [KIT]   (BINARY may be followed by its arguments in one string)

The kit is the folder of that name: the argument, or $HEADRACE_KIT, or ../shared/kit beside the
repository. Without it the script exits 77, which meson counts as skipped. What is compared: the text,
the message of raise_exception, and for other errors that there is one. Prints each difference
(the first 20), then the number of templates and cases that agree; exits 1 when one does not.
"""
import json
import os
import pathlib
import shlex
import subprocess
import sys

SHOWN_MAX = 20


def find_kit(argv):
    root = pathlib.Path(__file__).resolve().parents[2]
    for path in (argv[2] if len(argv) > 2 else None, os.environ.get("HEADRACE_KIT"), root / "../shared/kit"):
        if path and (pathlib.Path(path) / "templates" / "cases.jsonl").is_file():
            return pathlib.Path(path)
    return None


def load(kit):
    """Yields (group, case, request)."""
    folder = kit / "templates"
    sources = {}
    for line in open(folder / "jinja-units.jsonl", encoding="utf-8"):
        case = json.loads(line)
        yield "unit", case, {k: case[k] for k in ("template", "context", "now") if k in case}
    for line in open(folder / "cases.jsonl", encoding="utf-8"):
        case = json.loads(line)
        name = case["template"]
        if name not in sources:
            sources[name] = (folder / name).read_text(encoding="utf-8")
        yield name, case, {"template": sources[name], "context": case["context"], "now": case.get("now")}


def difference(case, answer):
    if "error" not in case:
        if answer.get("text") == case["expected"]:
            return None
        return f"expected {case['expected']!r}\n       got {answer!r}"
    if "error" not in answer:
        return f"expected an error {case['error']!r}\n       got {answer!r}"
    wanted = case["error"]
    if wanted["kind"] == "raise_exception" and answer["error"] != wanted["message"]:
        return f"expected the message {wanted['message']!r}\n       got {answer['error']!r}"
    return None


def main(argv):
    kit = find_kit(argv)
    if kit is None:
        print("the conformance kit is not there: skipped")
        return 77
    cases = list(load(kit))
    requests = "".join(json.dumps({k: v for k, v in r.items() if v is not None}) + "\n" for _, _, r in cases)
    done = subprocess.run(shlex.split(argv[1]) + ["render", "--raw"], input=requests.encode(), stdout=subprocess.PIPE,
                          check=False)
    answers = [json.loads(line) for line in done.stdout.decode("utf-8").split("\n") if line]
    if done.returncode or len(answers) != len(cases):
        print(f"exit code {done.returncode}, {len(answers)} answers to {len(cases)} cases")
        return 1
    groups, n_bad = {}, 0
    for (group, case, _), answer in zip(cases, answers):
        diff = difference(case, answer)
        groups[group] = groups.get(group, True) and diff is None
        n_bad += diff is not None
        if diff and n_bad <= SHOWN_MAX:
            print(f"{case['id']}: {diff}")
    whole = sum(ok for name, ok in groups.items() if name != "unit")
    print(f"{len(cases) - n_bad} of {len(cases)} cases agree; {whole} of {len(groups) - 1} templates agree in full")
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
