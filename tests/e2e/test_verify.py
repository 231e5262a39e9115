# SPDX-License-Identifier: Apache-2.0
"""verify: a model beside goldens of transformers, bf16 beside f32, and prompts as the model sees them.

tests/golden/verify/tiny-qwen3.jsonl is what make_goldens.py --model makes of tests/golden/tiny-qwen3. Tests that
want another file change a line of it."""
import copy
import json
import math
import pathlib

import pytest
from jobdir import DONE, FAILED, REJECTS, USAGE, jsonl
from tinymodel import NAN, START, byte_ids, change_json, change_tensor, random_model

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
AGREES, BROKEN = DONE, REJECTS


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return random_model(tmp_path_factory.mktemp("verify") / "tiny-qwen3")


@pytest.fixture
def lines():
    text = (GOLDEN / "verify" / "tiny-qwen3.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def goldens(tmp_path, lines):
    """Writes lines as a file of goldens; without any, the one that ships."""
    def write(changed=None):
        path = tmp_path / "goldens.jsonl"
        path.write_bytes(jsonl(changed or lines))
        return path
    return write


@pytest.fixture
def verify(headrace):
    def call(*args, code=AGREES):
        got = headrace("verify", *args, timeout=300)
        assert got.returncode == code, got.stdout + got.stderr
        return got
    return call


def report(got):
    return json.loads(got.stdout)


def comparison(got, name):
    return {c["name"]: c for c in report(got)["comparisons"]}[name]


def may_differ(rate, n):
    """The smallest k that a binomial of this rate does not exceed in 99 of 100 samples."""
    total = 0
    for k in range(n + 1):
        total += math.comb(n, k) * rate ** k * (1 - rate) ** (n - k)
        if total >= 0.99:
            return k
    return n


# --- goldens ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype, kl", [("f32", 1e-9), ("bf16", 5e-4)])
def test_good_goldens_agree(verify, tiny, goldens, lines, dtype, kl):
    got = verify("--model", tiny, "--against", goldens(), "--dtype", dtype, "--precision", "none", "--json")
    all_, n = report(got), sum(len(row["greedy"]) for row in lines[1:])
    assert all_["ok"] and len(all_["comparisons"]) == 1
    assert all_["goldens"]["text"]["equal"] == all_["goldens"]["ids"]["equal"] == len(lines) - 1
    assert all_["goldens"]["identity"] == "same config.json"
    assert [p["ids"] for p in all_["prompts"]] == [row["prompt_ids"] for row in lines[1:]]
    c = comparison(got, "goldens")
    assert c["positions"] == n and c["kl_is_lower_bound"] and 0.001 < c["rest"] < 0.1
    assert 0 <= c["kl_mean"] < kl and c["kl_max"] < 20 * kl
    assert c["may_differ"] == may_differ(0.001 if dtype == "f32" else 0.01, n)
    if dtype == "f32":
        assert c["agree"] == n and c["equal"] == len(lines) - 1 and c["partings"] == []
    else:
        assert c["kl_mean"] > 1e-7, "bf16 cannot be this near"


def test_the_report_says_it_in_words(verify, tiny, goldens):
    out = verify("--model", tiny, "--against", goldens(), "--ids").stdout
    assert "⟦<|im_start|>⟧user\nName three rivers" in out and "rises.⟦<|im_end|>⟧\n" in out
    assert "ids: 257 84 82 68 81 198" in out
    assert "6 of 6 prompts decode to the text that was encoded" in out
    assert "ok   rendered text: 6 of 6 equal" in out and "ok   token ids: 6 of 6 equal" in out
    assert out.count("ok   mean KL") == 3 and "FAIL" not in out
    assert out.endswith("verdict: all bounds are kept\n")


def test_one_changed_prompt_token_is_named(verify, tiny, goldens, lines):
    assert lines[2]["prompt_ids"][10] != 65
    was, lines[2]["prompt_ids"][10] = lines[2]["prompt_ids"][10], 65
    got = verify("--model", tiny, "--against", goldens(lines), "--precision", "none", code=BROKEN)
    assert f"FAIL token ids: 5 of 6 equal; prompt \"code\", token 11: {was} " in got.stdout
    assert "for the reference's 65 \"b\"" in got.stdout
    assert got.stdout.endswith("verdict: a bound is BROKEN, see FAIL above\n")


def test_one_changed_answer_token_is_where_the_answers_part(verify, tiny, goldens, lines):
    row = lines[1]
    ids, logprobs, _ = row["top"][5]
    lead = logprobs[0] - logprobs[1]
    assert lead > 0.3
    ids[0], ids[1] = ids[1], ids[0]
    row["greedy"][5] = ids[0]
    args = ("--model", tiny, "--against", goldens(lines), "--precision", "none")
    c = comparison(verify(*args, "--json", code=BROKEN), "goldens")
    assert c["part_sure"] == 1 and not c["answers_ok"]
    assert c["agree"] < c["positions"]
    first = c["partings"][0]
    assert (first["prompt"], first["position"]) == ("facts", 5)
    assert (first["ours"], first["reference"]) == (ids[1], ids[0]) and first["lead"] == pytest.approx(lead, abs=1e-5)
    out = verify(*args, code=BROKEN).stdout
    assert "FAIL greedy answers" in out and "prompt \"facts\", token 6 of the answer: " in out
    assert f"which leads by {lead:.3g} logits" in out


def test_perturbed_logits_break_the_bound_of_kl(verify, tiny, goldens, lines):
    for row in lines[1:]:
        for top in row["top"]:
            p = [math.exp(x) for x in top[1]] + [math.exp(top[2])]
            p = [x ** 0.9 for x in p]
            top[1] = [math.log(x / sum(p)) for x in p[:-1]]
            top[2] = math.log(p[-1] / sum(p))
    got = verify("--model", tiny, "--against", goldens(lines), "--dtype", "f32", "--json", code=BROKEN)
    c = comparison(got, "goldens")
    assert not c["kl_ok"] and c["kl_mean"] > 1e-3 and c["top1_ok"] and c["answers_ok"]
    verify("--model", tiny, "--against", goldens(lines), "--dtype", "f32", "--max-kl", 1)


def test_another_rendered_text_is_shown(verify, tiny, goldens, lines):
    lines[3]["rendered"] = lines[3]["rendered"].replace("A train", "A plane")
    got = verify("--model", tiny, "--against", goldens(lines), "--precision", "none", code=BROKEN)
    line = next(s for s in got.stdout.splitlines() if "rendered text" in s)
    assert line.startswith("FAIL rendered text: 5 of 6 equal; prompt \"numbers\", from byte 19: ")
    assert "A train leaves" in line and "A plane leaves" in line


def test_other_weights_of_the_same_shape_do_not_agree(verify, tmp_path, goldens):
    other = random_model(tmp_path / "m")
    change_tensor(other, "model.layers.0.mlp.down_proj.weight", 0, [0x4000] * 64)
    c = comparison(verify("--model", other, "--against", goldens(), "--precision", "none", "--json", code=BROKEN),
                   "goldens")
    assert not c["kl_ok"] and c["kl_mean"] > 0.01


def test_goldens_of_another_model_are_refused(verify, tmp_path, goldens):
    other = random_model(tmp_path / "m", "tiny-llama3")
    err = verify("--model", other, "--against", goldens(), code=USAGE).stderr
    assert "goldens.jsonl:1: these goldens are of another model: its head_dim is 32, that of" in err
    assert "is 16; give the model that they were made of" in err


def test_another_config_of_the_same_shape_is_a_note(verify, tmp_path, goldens):
    other = random_model(tmp_path / "m", config={"comment": "rewritten"})
    out = verify("--model", other, "--against", goldens(), "--precision", "none").stdout
    assert "same shape, but another config.json than the goldens were made with" in out


def damaged(change):
    def make(lines):
        change(lines)
        return jsonl(lines)
    return make


def set_top(i, value):
    def change(lines):
        lines[2]["top"][3][i] = value
    return damaged(change)


def put(key, value, line=2):
    def change(lines):
        lines[line][key] = value
    return damaged(change)


DAMAGED = {
    "torn": (lambda lines: jsonl(lines)[:-4000], "goldens.jsonl:7: torn or not JSON"),
    "end": (lambda lines: jsonl(lines[:-1]), "goldens.jsonl: the end is missing: 5 of 6 prompts are there"),
    "empty": (lambda lines: b"", "goldens.jsonl: the end is missing: 0 of 0"),
    "nan": (lambda lines: jsonl(lines).replace(b"-0.", b"NaN, -0.", 1), "goldens.jsonl:2: torn or not JSON"),
    "head": (lambda lines: jsonl(lines[1:]), "goldens.jsonl:1: not a file of goldens"),
    "version": (put("version", 2, 0), "goldens.jsonl:1: goldens of version 2; this headrace reads 1"),
    "count": (put("n_prompts", "six", 0), "goldens.jsonl:1: \"n_prompts\" must be a number"),
    "shape": (put("model", {}, 0), "goldens.jsonl:1: \"model\" does not say its vocab_size"),
    "now": (put("now", "today", 0), "goldens.jsonl:1: \"now\" must be a time"),
    "prompt": (put("prompt", 7), "goldens.jsonl:3: "),
    "rendered": (put("rendered", None), "goldens.jsonl:3: \"rendered\" must be a text"),
    "vocabulary": (put("prompt_ids", [257, 264]), "goldens.jsonl:3: \"prompt_ids\": element 2 is not a token of this "
                   "model (0 to 263)"),
    "none": (put("greedy", []), "goldens.jsonl:3: \"greedy\" must be a list of token ids"),
    "positions": (put("top", []), "goldens.jsonl:3: \"top\" has 0 positions for 16 tokens"),
    "ids": (set_top(0, [1, -2]), "goldens.jsonl:3: position 4 of \"top\": the best tokens: element 2"),
    "one": (set_top(0, [1]), "goldens.jsonl:3: position 4 of \"top\": a position needs its two best tokens"),
    "lengths": (set_top(1, [-0.5]), "goldens.jsonl:3: position 4 of \"top\": 24 tokens have 1 log-prob"),
    "order": (set_top(1, [-9.0 + i for i in range(24)]), "log-probability 2 is not a number, or larger than"),
    "text": (set_top(1, ["a"] * 24), "log-probability 1 is not a number"),
    "sum": (set_top(1, [-9.0] * 24), "goldens.jsonl:3: position 4 of \"top\": the probabilities sum to 0.0"),
    "rest": (set_top(2, "much"), "goldens.jsonl:3: position 4 of \"top\": what the other tokens have together"),
    "token": (put("greedy", [1] * 16), "goldens.jsonl:3: position 1 of \"top\": the answer has token 1 where"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_refused_by_file_and_line(verify, tiny, tmp_path, lines, name):
    make, message = DAMAGED[name]
    path = tmp_path / "goldens.jsonl"
    path.write_bytes(make(copy.deepcopy(lines)))
    got = verify("--model", tiny, "--against", path, code=USAGE)
    assert message in got.stderr and got.stdout == ""
    if name != "prompt":
        assert "make_goldens.py" in got.stderr


# --- precision ----------------------------------------------------------------------------------


def test_bf16_is_compared_with_f32_on_the_users_prompts(verify, tiny, tmp_path):
    prompts = tmp_path / "mine.jsonl"
    prompts.write_bytes(jsonl([{"id": i, "prompt": f"Count to {i}."} for i in range(9)]))
    args = ("--model", tiny, "--prompts", prompts, "--limit", 3, "--max-tokens", 24, "--json")
    got = verify(*args)
    names = [c["name"] for c in report(got)["comparisons"]]
    assert names == ["kv", "f32", "f32_kv"] and [p["id"] for p in report(got)["prompts"]] == [0, 1, 2]
    for name in names:
        c = comparison(got, name)
        assert c["answers"] == 3 and 3 <= c["positions"] <= 72 and not c["kl_is_lower_bound"]
        assert 1e-7 < c["kl_mean"] < 5e-4 and c["kl_mean"] <= c["kl_max"]
        assert c["agree"] <= c["positions"] and c["equal"] + len(c["partings"]) == 3
    assert comparison(got, "f32")["positions"] == comparison(got, "f32_kv")["positions"]
    assert comparison(got, "f32")["kl_mean"] != comparison(got, "f32_kv")["kl_mean"]
    kv = verify(*args, "--precision", "kv")
    assert report(kv)["comparisons"] == [comparison(got, "kv")]
    for alone in (("--precision", "none"), ("--dtype", "f32")):
        assert report(verify(*args, *alone))["comparisons"] == []


def test_numbers_do_not_depend_on_threads_or_neighbours(verify, tiny):
    some, more = (report(verify("--model", tiny, "--threads", n, "--limit", k, "--json")) for n, k in ((1, 1), (2, 4)))
    assert some["prompts"] == more["prompts"][:1]
    first = some["prompts"][0]["id"]
    for a, b in zip(some["comparisons"], more["comparisons"]):
        assert a["partings"] == [p for p in b["partings"] if p["prompt"] == first]


@pytest.mark.parametrize("bound, word", [(("--max-kl", 1e-8), "FAIL mean KL"),
                                         (("--min-top1", 1), "FAIL top-1 agreement"),
                                         (("--max-lead", 0), "FAIL greedy answers")])
def test_a_tighter_bound_is_broken(verify, tiny, bound, word):
    got = verify("--model", tiny, "--precision", "kv", "--max-tokens", 200, *bound, code=BROKEN)
    assert word in got.stdout and "BROKEN" in got.stdout


def test_logits_that_are_not_finite_are_an_error(verify, tmp_path):
    bad = random_model(tmp_path / "m")
    change_tensor(bad, "model.norm.weight", 0, [NAN])
    err = verify("--model", bad, code=FAILED).stderr
    assert "prompt \"verify-1\": the logits are not finite (f32 weights, f32 KV cache)" in err


def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(verify, tmp_path):
    big = random_model(tmp_path / "m", config={"max_position_embeddings": 1 << 30})
    err = verify("--model", big, "--max-tokens", 4, code=USAGE).stderr
    assert "f32 weights, f32 KV cache: this needs 12" in err and "--precision kv" in err and "loading" not in err


# --- prompts ------------------------------------------------------------------------------------


def text_only(verify, model, *args):
    return report(verify("--model", model, "--precision", "none", "--json", *args))


def test_prompts_come_from_rows_or_a_manifest(verify, tiny, tmp_path):
    rows = [{"id": "a", "messages": [{"role": "user", "content": "Hi"}]}, {"id": "b"}, {"id": "c", "prompt": "Ho"}]
    (tmp_path / "rows.jsonl").write_bytes(jsonl(rows))
    got = verify("--model", tiny, "--precision", "none", "--json", "--prompts", tmp_path / "rows.jsonl")
    assert [p["id"] for p in report(got)["prompts"]] == ["a", "c"] and report(got)["left_out"] == 1
    assert f"{tmp_path}/rows.jsonl:2: " in got.stderr and "left out" in got.stderr
    manifest = {"dataset": "d", "shards": "rows.jsonl", "prompt": "prompt", "system": "Be brief."}
    (tmp_path / "m.json").write_text(json.dumps(manifest), encoding="utf-8")
    prompts = text_only(verify, tiny, "--prompts", tmp_path / "m.json")["prompts"]
    assert [p["id"] for p in prompts] == ["c"] and "<|im_start|>system\nBe brief." in prompts[0]["rendered"]
    (tmp_path / "none.jsonl").write_bytes(jsonl([{"id": 1}]))
    err = verify("--model", tiny, "--prompts", tmp_path / "none.jsonl", code=USAGE).stderr
    assert "no row can be a prompt" in err


def test_what_a_user_typed_is_not_a_control_token(verify, tiny, tmp_path):
    (tmp_path / "p.jsonl").write_bytes(jsonl([{"id": 1, "prompt": "say <|im_end|> now"}]))
    out = verify("--model", tiny, "--precision", "none", "--prompts", tmp_path / "p.jsonl").stdout
    assert "⟦<|im_start|>⟧user\nsay <|im_end|> now⟦<|im_end|>⟧" in out
    assert out.endswith("verdict: nothing was compared\n")


def test_a_doubled_bos_is_warned_of(verify, tiny, tmp_path):
    assert not any(p["doubled_bos"] for p in text_only(verify, tiny)["prompts"])
    twice = random_model(tmp_path / "m")
    change_json(twice / "tokenizer_config.json",
                {"chat_template": "{{ bos_token }}{{ bos_token }}{{ messages[0]['content'] }}"})
    prompts = text_only(verify, twice)["prompts"]
    assert all(p["doubled_bos"] and p["ids"][:2] == [START, START] for p in prompts)
    out = verify("--model", twice, "--precision", "none").stdout
    assert "warning: 4 of 4 prompts begin with BOS twice" in out


def test_a_bos_that_the_template_leaves_out_is_noted(verify, tmp_path):
    without = random_model(tmp_path / "m")
    change_json(without / "tokenizer_config.json",
                {"chat_template": "{{ messages[0]['content'] }}", "add_bos_token": True})
    assert all(p["lacks_bos"] for p in text_only(verify, without)["prompts"])
    out = verify("--model", without, "--precision", "none").stdout
    assert "files ask for BOS, and the template writes none in 4 of 4 prompts" in out


def test_a_text_that_the_tokenizer_changes_is_told(verify, tmp_path):
    lower = random_model(tmp_path / "m")
    change_json(lower / "tokenizer.json", {"normalizer": {"type": "Lowercase"}})
    prompts = text_only(verify, lower, "--limit", 1)["prompts"]
    assert not prompts[0]["round_trip"]
    out = verify("--model", lower, "--precision", "none", "--limit", 1).stdout
    at = len("<|im_start|>user\n")
    assert f"0 of 1 prompts decode to the text that was encoded; prompt \"verify-1\" differs from byte {at} on" in out


def test_a_model_without_a_template_gets_prompts_as_they_are(verify, tmp_path):
    plain = random_model(tmp_path / "m")
    (plain / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "p.jsonl").write_bytes(jsonl([{"id": 1, "prompt": "abc"}]))
    got = text_only(verify, plain, "--prompts", tmp_path / "p.jsonl")
    assert got["prompts"][0]["ids"] == byte_ids("abc") and got["prompts"][0]["round_trip"]
    assert "template   none" in verify("--model", plain, "--precision", "none").stdout


def test_a_gguf_file_is_verified_too(verify, model):
    got = report(verify("--model", model, "--limit", 1, "--max-tokens", 4, "--precision", "kv", "--json"))
    assert "GGUF" in got["model"] and got["template"]["origin"] == "tokenizer.chat_template"
    assert got["comparisons"][0]["positions"] == 4 and got["prompts"][0]["round_trip"]


@pytest.mark.parametrize("args, message", [
    ((), "give --model PATH"),
    (("--model", "/nonexistent"), "/nonexistent"),
    (("--model", "x", "--cpu-mask", "fast"), "--cpu-mask expects a number"),
    (("--model", "x", "--against"), "--against expects FILE"),
    (("--model", "x", "--min-top1", "99"), "--min-top1 expects 0 to 1"),
])
def test_wrong_usage_is_refused(verify, args, message):
    assert message in verify(*args, code=USAGE).stderr


@pytest.mark.parametrize("option", ["--against", "--prompts"])
@pytest.mark.parametrize("path, said", [("/nonexistent/x.jsonl", "/nonexistent/x.jsonl: No such file"),
                                        ("/", "/: is a directory; name a file of it"),
                                        ("/dev/zero", "/dev/zero: is not a regular file")])
def test_a_file_that_holds_no_lines_is_refused(verify, tiny, option, path, said):
    assert said in verify("--model", tiny, option, path, code=USAGE).stderr
