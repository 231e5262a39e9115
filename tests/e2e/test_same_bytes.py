# SPDX-License-Identifier: Apache-2.0
"""same bytes: a row depends on what is asked, never on what shared its batch or how it was computed."""
import json
import os
import random
import subprocess

import pytest

from jobdir import Job, cpu_masks
from tinymodel import random_model

GREEDY = {"temperature": 0, "ignore_eos": True}
WARM = {"temperature": 0.8, "seed": 7, "top_p": 0.95, "top_k": 50, "repetition_penalty": 1.1}


def make_rows(n=40):
    """Prompts of 1 to 250 bytes, so that chunks, pages and segments end everywhere. The short answers come
    first: they make the scheduler expect short ones, and a small pool then has to preempt."""
    rng = random.Random(3)
    words = "say what the miller's wheel turns when water is low".split()
    return [{"id": i, "prompt": " ".join(rng.choices(words, k=1 + i % 50)),
             "max_tokens": 3 + i % 5 if i < n // 2 else 90 + i} for i in range(n)]


@pytest.fixture(scope="module", params=["tiny-qwen3", "tiny-llama3"])
def tiny(request, tmp_path_factory):
    return random_model(tmp_path_factory.mktemp("model") / request.param, request.param)


VARIANTS = {
    "one_running": ["--max-running", 1],
    "seven_running": ["--max-running", 7],
    "one_thread": ["--threads", 1],
    "three_threads": ["--threads", 3, "--max-running", 5],
    "small_steps": ["--step-tokens", 5, "--max-running", 5],
    "odd_steps": ["--step-tokens", 33, "--max-running", 32],
    "large_steps": ["--step-tokens", 4096],
    "scattered_pages": ["--scatter", 11],
    "small_pool": ["--kv-tokens", 1024, "--scatter", 5],
}


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
def test_rows_do_not_depend_on_how_they_were_batched(headrace, tmp_path, tiny, sampling):
    job = Job(headrace, tmp_path, tiny, make_rows(), sampling=sampling, output={"token_ids": True})
    want = job.sorted_lines("--max-running", 32, "--threads", 2, out="want")
    assert len(want) == 40 and len({json.loads(line)["response"] for line in want}) > 30
    for name, args in VARIANTS.items():
        assert job.sorted_lines(*args, out=name) == want, name
    assert job.status(out="small_pool")["preemptions"] > 0
    assert job.status(out="want")["preemptions"] == 0


def test_rows_do_not_depend_on_how_shards_are_cut_or_ordered(headrace, tmp_path, tiny):
    rows = make_rows(20)
    want = Job(headrace, tmp_path / "one", tiny, rows, sampling=WARM).sorted_lines(out="out")
    halves = (rows[:7], rows[7:])
    assert Job(headrace, tmp_path / "two", tiny, halves, sampling=WARM).sorted_lines(out="out") == want
    random.Random(1).shuffle(rows)
    assert Job(headrace, tmp_path / "mixed", tiny, rows, sampling=WARM).sorted_lines(out="out") == want


def test_a_seeded_row_is_the_same_alone_and_among_others(headrace, tmp_path, tiny):
    row = {"id": "A", "prompt": "a seeded row", "seed": 42, "n": 4, "temperature": 1.0, "max_tokens": 24}
    others = [{"id": f"o{i}", "prompt": f"another {i}", "max_tokens": 3 + i} for i in range(31)]
    alone = Job(headrace, tmp_path / "alone", tiny, [row], sampling={"max_tokens": 40})
    want = alone.sorted_lines(out="out")
    assert [json.loads(line)["sample"] for line in want] == [0, 1, 2, 3]
    assert len({json.loads(line)["response"] for line in want}) == 4, "four samples, four answers"
    assert alone.sorted_lines(out="again") == want
    among = Job(headrace, tmp_path / "among", tiny, others[:9] + [row] + others[9:], sampling={"max_tokens": 40})
    for i, args in enumerate(([], ["--max-running", 3], ["--kv-tokens", 512])):
        lines = among.sorted_lines(*args, out=f"out{i}")
        assert [line for line in lines if json.loads(line)["id"] == "A"] == want
    for row["seed"] in (43, -42):
        other = Job(headrace, tmp_path / f"seed{row['seed']}", tiny, [row], sampling={"max_tokens": 40})
        answers = {json.loads(line)["response"] for line in other.sorted_lines(out="out")}
        assert not answers & {json.loads(line)["response"] for line in want}


def test_raising_n_keeps_the_samples_that_are_there(headrace, tmp_path, tiny):
    rows = make_rows(6)
    four = Job(headrace, tmp_path / "four", tiny, rows, sampling={**WARM, "n": 4}).sorted_lines(out="out")
    job = Job(headrace, tmp_path / "two", tiny, rows, sampling={**WARM, "n": 2})
    two = job.sorted_lines(out="out")
    assert len(two) == 12 and set(two) < set(four)
    job.write_manifest(sampling={**WARM, "n": 4})
    assert job.sorted_lines(out="out") == four
    assert job.status()["rows_done"] == job.status()["rows_total"] == 24


def test_rows_are_the_same_in_every_way_of_batching_on_each_tier(headrace, tmp_path, tiny):
    rows = make_rows(12)
    for mask in cpu_masks(headrace):
        job = Job(headrace, tmp_path / f"mask{mask}", tiny, rows, sampling=WARM)
        want = job.sorted_lines("--cpu-mask", mask, out="want")
        assert job.sorted_lines("--cpu-mask", mask, "--max-running", 1, "--threads", 1, "--step-tokens", 9,
                                out="one") == want
        assert job.sorted_lines("--cpu-mask", mask, "--kv-tokens", 512, "--scatter", 3, out="tight") == want


def test_f32_rows_are_the_same_in_every_way_of_batching(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, make_rows(12), sampling=WARM)
    want = job.sorted_lines("--dtype", "f32", out="want")
    assert job.sorted_lines("--dtype", "f32", "--max-running", 1, "--step-tokens", 7, out="one") == want
    assert job.sorted_lines("--dtype", "f32", "--kv-tokens", 512, "--scatter", 3, out="tight") == want


def test_the_demo_model_answers_the_same_with_1_7_and_32_running(headrace, tmp_path, model):
    rows = [{"id": i, "prompt": p} for i, p in enumerate([
        "What is the capital of France?", "Write a haiku about a mill.", "Name three primes.",
        "def add(a, b):", "Explain rain to a child in two sentences.", "Translate 'water' into German."])]
    n = 64 if os.environ.get("HEADRACE_LONG") else 16
    for name, sampling in (("greedy", {"temperature": 0}), ("warm", {"temperature": 0.8, "seed": 1})):
        job = Job(headrace, tmp_path / name, model, rows, sampling={**sampling, "max_tokens": n})
        want = job.sorted_lines("--max-running", 32, "--threads", 2, out="32")
        assert job.sorted_lines("--max-running", 1, "--threads", 1, out="1") == want
        assert job.sorted_lines("--max-running", 7, "--step-tokens", 16, out="7") == want


@pytest.mark.skipif(not os.environ.get("HEADRACE_LONG"), reason="HEADRACE_LONG is not set")
def test_humaneval_answers_the_same_with_1_7_and_32_running(headrace, tmp_path, model, kit):
    shard = (kit / "prompts" / "humaneval.raw.jsonl").read_bytes()
    for name, sampling in (("greedy", {"temperature": 0}), ("warm", {"temperature": 0.8, "seed": 1})):
        job = Job(headrace, tmp_path / name, model, shard, sampling={**sampling, "max_tokens": 32}, id="task_id",
                  prompt="prompt")
        want = job.sorted_lines("--max-running", 32, "--threads", 2, out="32", timeout=3600)
        assert len(want) == 164
        assert job.sorted_lines("--max-running", 1, "--threads", 1, out="1", timeout=3600) == want
        assert job.sorted_lines("--max-running", 7, "--threads", 2, out="7", timeout=3600) == want


def test_tiers_of_one_machine_do_not_mix_in_one_file(headrace, tmp_path, tiny):
    masks = cpu_masks(headrace)
    if len(masks) < 2:
        pytest.skip("this machine has one tier")
    job = Job(headrace, tmp_path, tiny, make_rows(4), sampling=WARM)
    job.run("--limit", 2)
    got = job.run("--cpu-mask", 0, code=2)
    assert "--allow-mixed-numerics" in got.stderr
    assert len(job.rows()) == 2
    job.run("--cpu-mask", 0, "--allow-mixed-numerics")
    assert len(job.rows()) == 4
    assert subprocess.run(["tail", "-c1", job.path("raw_responses.jsonl")], capture_output=True,
                          check=True).stdout == b"\n"
