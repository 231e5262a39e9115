# SPDX-License-Identifier: Apache-2.0
"""precedence: row, command line, manifest, the model's generation_config, default; for each setting."""
import pytest

from jobdir import Job
from tinymodel import STOP, byte_ids, chain, chain_model, random_model

ABC = chain("0abcdefghijklmnopqrst", STOP)


def lengths(headrace, folder, model, args=(), row=None, **sampling):
    job = Job(headrace, folder, model, [{"id": 1, "prompt": "0", **(row or {})}], chat=False,
              sampling={"temperature": 0, **sampling})
    job.run(*args)
    row = job.rows()[0]
    return row["usage"]["completion_tokens"], row["finish_reason"]


def test_max_tokens_is_the_rows_then_the_flags_then_the_manifests_then_none(headrace, tmp_path):
    # generation_config's max_length and max_new_tokens are a library's defaults, not the model's: ignored.
    model = chain_model(tmp_path / "m", ABC, generation={"max_new_tokens": 2, "max_length": 2})
    flag = ["--max-tokens", 5]
    assert lengths(headrace, tmp_path / "a", model, flag, {"max_tokens": 3}, max_tokens=7) == (3, "length")
    assert lengths(headrace, tmp_path / "b", model, flag, max_tokens=7) == (5, "length")
    assert lengths(headrace, tmp_path / "c", model, max_tokens=7) == (7, "length")
    assert lengths(headrace, tmp_path / "d", model) == (21, "stop")
    assert lengths(headrace, tmp_path / "e", model, flag, {"max_tokens": None}, max_tokens=7) == (21, "stop")
    assert lengths(headrace, tmp_path / "f", model, max_tokens=None) == (21, "stop")
    assert lengths(headrace, tmp_path / "g", model, row={"max_completion_tokens": 4}) == (4, "length")


def test_what_was_chosen_is_said_once_for_each_dataset(headrace, tmp_path):
    model = chain_model(tmp_path / "m", ABC, generation={"temperature": 0.5, "top_k": 7})
    jobs = [Job(headrace, tmp_path, model, [{"id": 1, "prompt": "0"}], dataset="a", chat=False),
            Job(headrace, tmp_path, model, [{"id": 1, "prompt": "0", "max_tokens": 2}], dataset="b", chat=False,
                sampling={"top_p": 0.25, "top_k": -1, "max_tokens": 3, "seed": 9, "n": 2, "stop": ["x", "y"],
                          "ignore_eos": True, "min_p": 0.125})]
    got = headrace("run", *(job.manifest for job in jobs), "--model", model, "--out", tmp_path / "out")
    said = [line for line in got.stderr.splitlines() if "temperature" in line]
    assert said == ["a: temperature 0.5, top_p 1, top_k 7, max_tokens to the end or the context, seed 0, n 1",
                    "b: temperature 0.5, top_p 0.25, top_k off, min_p 0.125, max_tokens 3, seed 9, n 2, ignore_eos, "
                    "stops 2"]
    assert said[0] in jobs[0].path("run.log").read_text(encoding="utf-8")


def is_greedy(headrace, folder, model, args=(), row=None, **sampling):
    """Whether eight seeds give one answer: that is temperature 0."""
    rows = [{"id": i, "prompt": "0", "seed": i, "max_tokens": 8, "ignore_eos": True, **(row or {})}
            for i in range(8)]
    job = Job(headrace, folder, model, rows, chat=False, sampling=sampling)
    job.run(*args)
    return len({r["response"] for r in job.rows()}) == 1


def test_temperature_is_the_rows_then_the_flags_then_the_manifests_then_the_models_then_1(headrace, tmp_path):
    cold = random_model(tmp_path / "cold", generation={"temperature": 0.0})
    warm = random_model(tmp_path / "warm", generation={"temperature": 1.0})
    none = random_model(tmp_path / "none")
    greedy, sampled = ["--temperature", 0], ["--temperature", 1.5]
    for i, (want, model, args, row, manifest) in enumerate([
            (True, warm, sampled, {"temperature": 0}, {"temperature": 1}),
            (False, cold, greedy, {"temperature": 1}, {"temperature": 0}),
            (True, warm, greedy, None, {"temperature": 1}),
            (False, cold, sampled, None, {"temperature": 0}),
            (True, warm, [], None, {"temperature": 0}),
            (False, cold, [], None, {"temperature": 1}),
            (True, cold, [], None, {}),
            (False, warm, [], None, {}),
            (False, none, [], None, {})]):
        assert is_greedy(headrace, tmp_path / str(i), model, args, row, **manifest) == want, i


def test_do_sample_false_of_generation_config_is_greedy_and_its_top_k_counts(headrace, tmp_path):
    model = random_model(tmp_path / "m", generation={"do_sample": False, "temperature": 1.0})
    assert is_greedy(headrace, tmp_path / "a", model)
    model = random_model(tmp_path / "k", generation={"do_sample": True, "top_k": 1})
    assert is_greedy(headrace, tmp_path / "b", model)
    assert not is_greedy(headrace, tmp_path / "c", model, top_k=0)


def seed_and_answer(headrace, folder, model, args=(), row=None, **sampling):
    job = Job(headrace, folder, model, [{"id": 1, "prompt": "0", **(row or {})}], chat=False,
              sampling={"temperature": 1, "max_tokens": 12, "ignore_eos": True, **sampling})
    job.run(*args)
    row = job.rows()[0]
    return row["seed"], row["response"]


def test_seed_is_the_rows_then_the_flags_then_the_manifests_then_0(headrace, tmp_path):
    model = random_model(tmp_path / "m")
    by_seed = {}
    for i, (args, row, manifest, want) in enumerate([
            (["--seed", 2], {"seed": 1}, {"seed": 3}, 1),
            (["--seed", 2], {}, {"seed": 3}, 2), ([], {}, {"seed": 3}, 3), ([], {}, {}, 0),
            ([], {"seed": 3}, {}, 3), (["--seed", 1], {}, {}, 1)]):
        seed, text = seed_and_answer(headrace, tmp_path / str(i), model, args, row, **manifest)
        assert seed == want
        assert by_seed.setdefault(seed, text) == text
    assert len(set(by_seed.values())) == 4


@pytest.mark.parametrize("key, value", [("stop", ["c"]), ("stop_token_ids", byte_ids("c"))])
def test_an_empty_list_of_a_row_takes_the_manifests_stops_away(headrace, tmp_path, key, value):
    model = chain_model(tmp_path / "m", ABC)
    assert lengths(headrace, tmp_path / "a", model, **{key: value}) == (3, "stop")
    assert lengths(headrace, tmp_path / "b", model, row={key: []}, **{key: value}) == (21, "stop")


def test_two_rows_with_one_seed_and_question_still_differ(headrace, tmp_path):
    model = random_model(tmp_path / "m")
    rows = [{"id": i, "prompt": "the same", "seed": 5} for i in range(6)] + [{"prompt": "the same"}] * 3
    job = Job(headrace, tmp_path / "j", model, rows, sampling={"temperature": 1, "max_tokens": 12,
                                                               "ignore_eos": True})
    job.run()
    assert len({r["response"] for r in job.rows()}) == 9
    assert sorted(r.get("occurrence", 0) for r in job.rows()) == [0] * 7 + [1, 2]
