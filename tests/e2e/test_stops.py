# SPDX-License-Identifier: Apache-2.0
"""stops: what ends an answer, what of it is in the text, and what the row says about it.

The models are chains (tinymodel): the last byte of a raw prompt decides the whole answer."""
import json
import re

import pytest

from jobdir import DONE, REJECTS, Job
from tinymodel import END, N_VOCAB, NAN, STOP, byte_ids, chain, chain_model, change_json, change_tensor, random_model

RAW = {"chat": False, "output": {"token_ids": True}}


def answer(headrace, folder, model, prompt="0", args=(), row=None, **sampling):
    """The row of one raw prompt, greedy unless said otherwise."""
    job = Job(headrace, folder, model, [{"id": 1, "prompt": prompt, **(row or {})}],
              sampling={"temperature": 0, **sampling}, **RAW)
    job.run(*args)
    return job.rows()[0]


def ended(row):
    return row["response"], row["finish_reason"], row.get("stop_reason"), row["usage"]["completion_tokens"]


# ---- end-of-sequence tokens -------------------------------------------------------------------------

@pytest.mark.parametrize("named", [[END, STOP], END], ids=["a list", "an int"])
def test_eos_ids_of_generation_config_end_an_answer(headrace, tmp_path, named):
    table = chain("0ab", END, "c") | chain("1xy", STOP, "z")
    model = chain_model(tmp_path / "m", table, generation={"eos_token_id": named})
    assert ended(answer(headrace, tmp_path / "j", model)) == ("ab", "stop", None, 3)
    assert ended(answer(headrace, tmp_path / "k", model, prompt="1")) == ("xy", "stop", None, 3)


def test_a_token_that_no_file_calls_an_end_does_not_end_an_answer(headrace, tmp_path):
    model = chain_model(tmp_path / "m", chain("0ab", END, "c", STOP))
    assert ended(answer(headrace, tmp_path / "j", model)) == ("ab" + "c", "stop", None, 5)


def test_eos_as_the_last_allowed_token_is_a_stop(headrace, tmp_path):
    model = chain_model(tmp_path / "m", chain("0abc", STOP))
    assert ended(answer(headrace, tmp_path / "3", model, prompt="1a", max_tokens=3)) == ("bc", "stop", None, 3)
    assert ended(answer(headrace, tmp_path / "2", model, prompt="1a", max_tokens=2)) == ("bc", "length", None, 2)


def test_ignore_eos_goes_on_to_max_tokens_and_stop_ids_still_stop(headrace, tmp_path):
    model = chain_model(tmp_path / "m", chain("0", STOP, "ab") | {byte_ids("b")[0]: STOP},
                        generation={"eos_token_id": [STOP]})
    assert ended(answer(headrace, tmp_path / "eos", model, max_tokens=50)) == ("", "stop", None, 1)
    row = answer(headrace, tmp_path / "go", model, max_tokens=50, ignore_eos=True)
    assert row["finish_reason"] == "length" and row["usage"]["completion_tokens"] == 50
    assert row["completion_token_ids"][:4] == [STOP, *byte_ids("ab"), STOP]
    row = answer(headrace, tmp_path / "flag", model, args=["--ignore-eos"], max_tokens=7)
    assert row["finish_reason"] == "length" and row["usage"]["completion_tokens"] == 7
    b = byte_ids("b")[0]
    got = ended(answer(headrace, tmp_path / "id", model, max_tokens=50, ignore_eos=True, stop_token_ids=[b]))
    assert got[1:] == ("stop", b, 3)
    got = ended(answer(headrace, tmp_path / "eosid", model, max_tokens=50, ignore_eos=True, stop_token_ids=[STOP]))
    assert got == ("", "stop", STOP, 1)


# ---- stop strings and ids ---------------------------------------------------------------------------

def test_a_stop_string_is_cut_at_its_leftmost_beginning(headrace, tmp_path):
    model = chain_model(tmp_path / "m", chain("0", 259, STOP), extra_tokens=["Answer\n\n"])
    assert ended(answer(headrace, tmp_path / "a", model)) == ("Answer\n\n", "stop", None, 2)
    assert ended(answer(headrace, tmp_path / "b", model, stop="\n")) == ("Answer", "stop", "\n", 1)
    # Two in one token: the earliest beginning wins, ties by the order of the list.
    assert ended(answer(headrace, tmp_path / "c", model, stop=["er", "sw"])) == ("An", "stop", "sw", 1)
    assert ended(answer(headrace, tmp_path / "d", model, stop=["swer", "sw"])) == ("An", "stop", "swer", 1)
    assert ended(answer(headrace, tmp_path / "e", model, stop=["sw", "swer"])) == ("An", "stop", "sw", 1)


def test_a_stop_string_over_several_tokens_leaves_nothing_of_itself(headrace, tmp_path):
    model = chain_model(tmp_path / "m", chain("0abcdefg", STOP))
    assert ended(answer(headrace, tmp_path / "a", model, stop=["def"])) == ("abc", "stop", "def", 6)
    assert ended(answer(headrace, tmp_path / "b", model, stop=["defgh", "xyz"])) == ("abcdefg", "stop", None, 8)
    assert ended(answer(headrace, tmp_path / "c", model, stop=["g"], max_tokens=7)) == ("abcdef", "stop", "g", 7)


def test_stop_strings_may_hold_any_character(headrace, tmp_path):
    model = chain_model(tmp_path / "m", chain("0a\0\u010f", STOP))
    assert ended(answer(headrace, tmp_path / "a", model, stop=["\0"])) == ("a", "stop", "\0", 2)
    assert ended(answer(headrace, tmp_path / "b", model, stop=["\0\u010f"])) == ("a", "stop", "\0\u010f", 4)
    assert ended(answer(headrace, tmp_path / "c", model, stop=["\u010f"])) == ("a\0", "stop", "\u010f", 4)


def test_a_rows_stop_replaces_the_manifests(headrace, tmp_path):
    model = chain_model(tmp_path / "m", chain("0abcdefg", STOP))
    got = answer(headrace, tmp_path / "a", model, row={"stop": ["f"]}, stop=["b"])
    assert ended(got) == ("abcde", "stop", "f", 6)
    c, d = byte_ids("cd")
    got = answer(headrace, tmp_path / "b", model, row={"stop_token_ids": [d]}, stop_token_ids=[c])
    assert ended(got) == ("abc", "stop", d, 4)
    assert ended(answer(headrace, tmp_path / "c", model, stop_token_ids=[c])) == ("ab", "stop", c, 3)


def test_usage_counts_the_stop_token_and_ids_are_complete(headrace, tmp_path):
    model = chain_model(tmp_path / "m", chain("0ab", STOP))
    row = answer(headrace, tmp_path / "a", model, prompt="xy0")
    assert row["completion_token_ids"] == [*byte_ids("ab"), STOP]
    assert row["prompt_token_ids"] == byte_ids("xy0")
    assert row["usage"] == {"prompt_tokens": 3, "completion_tokens": 3}


def test_a_stop_id_outside_the_vocabulary_is_warned_of(headrace, tmp_path):
    model = chain_model(tmp_path / "m", chain("0ab", STOP))
    for stop_id, warned in ((N_VOCAB - 1, False), (N_VOCAB, True)):
        job = Job(headrace, tmp_path / str(stop_id), model, [{"id": 1, "prompt": "0"}],
                  sampling={"temperature": 0, "stop_token_ids": [stop_id]}, **RAW)
        assert (f"stop_token_ids: {stop_id} is outside the model's vocabulary" in job.run().stderr) == warned
        assert job.rows()[0]["response"] == "ab"


def test_a_loss_mask_of_two_turns_follows_from_the_rows_ids(headrace, tmp_path):
    """The boundary is where generation began, so no template needs generation tags for it."""
    model = chain_model(tmp_path / "m", chain("\nab c", STOP))
    turns = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "ab c"},
             {"role": "user", "content": "two"}]
    for name, max_tokens, end in (("stop", 9, [STOP]), ("length", 3, [])):
        job = Job(headrace, tmp_path / name, model, [{"id": 1, "messages": turns}], output={"token_ids": True},
                  sampling={"temperature": 0, "max_tokens": max_tokens})
        job.run()
        row = job.rows()[0]
        ids = row["prompt_token_ids"] + row["completion_token_ids"]
        mask = [0] * row["usage"]["prompt_tokens"] + [1] * row["usage"]["completion_tokens"]
        assert len(mask) == len(ids) and sum(mask) > 0 and row["finish_reason"] == name
        assert ids[:len(row["prompt_token_ids"])].count(STOP) == 3  # the assistant's earlier turn is prompt
        assert [i for i, m in zip(ids, mask) if m] == byte_ids(row["response"]) + end
        assert row["response"] == "ab c"[:max_tokens]


# ---- characters in pieces ---------------------------------------------------------------------------

def test_a_character_cut_by_max_tokens_is_dropped_and_its_ids_stay(headrace, tmp_path):
    text = "d\u010f\U0001f375"  # 1, 2 and 4 bytes, no byte twice
    model = chain_model(tmp_path / "m", chain("0" + text, STOP))
    ids = byte_ids(text)
    for n in range(1, len(ids) + 1):
        row = answer(headrace, tmp_path / str(n), model, max_tokens=n)
        whole = text.encode()[:n].decode("utf-8", "ignore")
        assert row["response"] == whole and row["completion_token_ids"] == ids[:n]
        assert row["finish_reason"] == "length"
        assert row.get("dropped_bytes", 0) == len(text.encode()[:n]) - len(whole.encode())
    assert answer(headrace, tmp_path / "all", model)["response"] == text


def test_bytes_that_are_no_character_become_one_mark_each_as_in_python(headrace, tmp_path):
    data = b"0a\xe2\x82b\xffc\xf0\x9f"
    model = chain_model(tmp_path / "m", chain(data, STOP))
    row = answer(headrace, tmp_path / "a", model)
    assert row["response"].startswith("a\ufffdb\ufffdc")
    assert row["response"] == data[1:-2].decode("utf-8", "replace") and row["dropped_bytes"] == 2


def test_broken_bytes_before_a_stop_string_stay_a_mark(headrace, tmp_path):
    model = chain_model(tmp_path / "m", chain(b"0a\xe2\x82b", STOP))
    row = answer(headrace, tmp_path / "a", model, stop="b")
    assert row["response"] == "a\ufffd" and "dropped_bytes" not in row


# ---- SentencePiece ----------------------------------------------------------------------------------

PIECES = ["\u2581Hi", "\u2581there", "\u2581", "x", "end"]
HI, THERE, BLANK, X = range(259, 263)


def test_the_text_of_a_sentencepiece_model_is_its_decoders(headrace, tmp_path):
    one = chain_model(tmp_path / "m", chain(0x30, HI, THERE, STOP) | chain(0x31, BLANK, X, 0xe4, 0xba, 0x62, STOP),
                      pieces=PIECES)
    row = answer(headrace, tmp_path / "a", one)
    assert ended(row) == ("Hi there", "stop", None, 3)
    assert row["completion_token_ids"] == [HI, THERE, STOP] and row["prompt_token_ids"] == [0x30]
    # One blank is stripped and not more; of a run of byte tokens that is no text each byte is marked.
    assert ended(answer(headrace, tmp_path / "b", one, prompt="1"))[0] == "x\ufffd\ufffd\ufffd"
    two = chain_model(tmp_path / "n", chain(0x30, BLANK, HI, THERE, 0xc4, 0x8f, X, STOP), pieces=PIECES)
    assert answer(headrace, tmp_path / "c", two)["response"] == " Hi there\u010fx"
    row = answer(headrace, tmp_path / "d", two, max_tokens=4)
    assert row["response"] == " Hi there" and row["dropped_bytes"] == 1
    assert row["completion_token_ids"] == [BLANK, HI, THERE, 0xc4]


def test_a_stop_string_is_one_in_the_text_that_a_user_sees(headrace, tmp_path):
    model = chain_model(tmp_path / "m", chain(0x30, HI, THERE, STOP), pieces=PIECES)
    assert ended(answer(headrace, tmp_path / "a", model, stop=" Hi")) == ("Hi there", "stop", None, 3)
    assert ended(answer(headrace, tmp_path / "b", model, stop="Hi")) == ("", "stop", "Hi", 1)
    assert ended(answer(headrace, tmp_path / "c", model, stop=" there")) == ("Hi", "stop", " there", 2)
    assert ended(answer(headrace, tmp_path / "d", model, stop=" ")) == ("Hi", "stop", " ", 2)


def test_text_is_not_normalised_on_its_way_out(headrace, tmp_path):
    """The tokenizer normalises (NFC) what goes in, and only there."""
    odd = ["e\u0301", "\u212b", "\u1112\u1161\u11ab", "e\u0323\u0302", "\ufb01"]
    model = chain_model(tmp_path / "m", chain("0", 259, 260, 261, 262, 263, STOP), extra_tokens=odd)
    change_json(model / "tokenizer.json", {"normalizer": {"type": "NFC"}})
    job = Job(headrace, tmp_path / "j", model, [{"id": "e\u0301", "prompt": "u\u03080", "note": "\u212b"}],
              sampling={"temperature": 0}, **RAW)
    job.run()
    row = job.rows()[0]
    assert row["response"] == "".join(odd) and row["prompt_token_ids"] == byte_ids("\u00fc0")
    assert row["id"] == "e\u0301" and row["prompt"] == "u\u03080" and row["metadata"] == {"note": "\u212b"}


@pytest.mark.parametrize("name", ["spm-llama", "unigram-t5", "spm-unknown", "bytes-gpt2"])
def test_what_a_tokenizer_makes_of_ids_is_what_a_row_says(headrace, tmp_path, root, name):
    """Each of the model's tokens is followed by the next one; `headrace tokenize` is held to the reference."""
    model = chain_model(tmp_path / "m", {i: i + 1 for i in range(998)}, n_vocab=1000)
    cases = root / "tests" / "fidelity" / "cases" / name
    (model / "tokenizer.json").write_bytes((cases / "tokenizer.json").read_bytes())
    rows = [{"id": c, "prompt": c} for c in ("a", "the", "\n", "\u00e9", " x", "9", "\u4eba")]
    job = Job(headrace, tmp_path / "j", model, rows, sampling={"temperature": 0, "max_tokens": 150,
                                                              "ignore_eos": True}, **RAW)
    job.run()
    lines = "".join(json.dumps({"ids": r["completion_token_ids"]}) + "\n" for r in job.rows())
    got = headrace("tokenize", "--tokenizer", model / "tokenizer.json", stdin=lines).stdout.splitlines()
    assert len(got) == len(rows)
    for row, line in zip(job.rows(), got):
        whole = row["response"] + ("\ufffd" if "dropped_bytes" in row else "")
        assert whole == json.loads(line)["decoded_skip"]


# ---- numbers ----------------------------------------------------------------------------------------

def test_top_k_that_is_off_keeps_every_token(headrace, tmp_path):
    model = chain_model(tmp_path / "m", {}, flat=True, generation={"top_k": 0})
    rows = [{"id": f"{k}/{s}", "prompt": "0", "seed": s, "top_k": k} for k in (0, -1, 10**6) for s in range(60)]
    rows += [{"id": f"none/{s}", "prompt": "0", "seed": s} for s in range(60)]
    job = Job(headrace, tmp_path / "j", model, rows, sampling={"temperature": 1, "max_tokens": 1}, **RAW)
    job.run()
    for kind in ("0", "-1", "1000000", "none"):
        ids = [r["completion_token_ids"][0] for i, r in job.by_id().items() if i.split("/")[0] == kind]
        assert len(ids) == 60 and len(set(ids)) > 40, kind


def test_tiny_and_huge_sampling_values_still_give_an_answer(headrace, tmp_path):
    model = random_model(tmp_path / "m")
    odd = [{"temperature": 1e-30}, {"temperature": 1e-300}, {"temperature": 1e6}, {"top_p": 1e-50},
           {"top_p": 1e-9}, {"min_p": 1}, {"top_k": 1}, {"top_k": 2**40}, {"repetition_penalty": 1e6},
           {"presence_penalty": 2, "frequency_penalty": -2}, {"temperature": -0.0}, {"seed": -2**63},
           {"seed": 2**63 - 1}]
    rows = [{"id": i, "prompt": "say", "max_tokens": 4, **o} for i, o in enumerate(odd)]
    rows.append({"id": "greedy", "prompt": "say", "max_tokens": 4, "temperature": 0})
    job = Job(headrace, tmp_path / "j", model, rows, sampling={"temperature": 1, "ignore_eos": True})
    job.run()
    got = job.by_id()
    assert len(got) == len(rows)
    for i in (0, 1, 3, 5, 6, 10):
        assert got[i]["response"] == got["greedy"]["response"], odd[i]


def test_a_model_whose_numbers_went_wrong_gives_rejects_and_no_row(headrace, tmp_path):
    model = random_model(tmp_path / "m")
    change_tensor(model, "model.layers.1.mlp.down_proj.weight", 0, [NAN])
    rows = [{"id": i, "prompt": f"say {i}"} for i in range(5)]
    job = Job(headrace, tmp_path / "j", model, rows, sampling={"temperature": 0, "max_tokens": 8})
    got = job.run(code=REJECTS)
    assert job.rows() == []
    assert {r["id"] for r in job.rejects()} == set(range(5))
    assert all("not finite" in r["reason"] for r in job.rejects())
    assert "5" in got.stderr and "not finite" in got.stderr
    first = job.lines("rejects.jsonl")
    job.run(code=REJECTS)
    assert job.lines("rejects.jsonl") == first and job.status()["rejects"] == 5


LAYER = "model.layers.1."
FAULTS = [  # tensor, its bad element (None: Z's row), the place that the reject names, the token's place
    ("model.embed_tokens.weight", None, "the token's embedding (embed_tokens)", 4),
    (LAYER + "input_layernorm.weight", 5, "layer 1's norm before attention (input_layernorm)", 0),
    (LAYER + "self_attn.k_proj.weight", 5, "layer 1's attention inputs (self_attn.q_proj, k_proj, v_proj)", 0),
    (LAYER + "self_attn.q_norm.weight", 5, "layer 1's rotated queries (self_attn.q_norm)", 0),
    (LAYER + "self_attn.k_norm.weight", 5, "layer 1's attention (self_attn)", 0),
    (LAYER + "self_attn.o_proj.weight", 5, "layer 1's attention output (self_attn.o_proj)", 0),
    (LAYER + "post_attention_layernorm.weight", 5,
     "layer 1's norm before the feed-forward (post_attention_layernorm)", 0),
    (LAYER + "mlp.up_proj.weight", 5, "layer 1's feed-forward inputs (mlp.gate_proj, up_proj)", 0),
    (LAYER + "mlp.down_proj.weight", 5, "layer 1's feed-forward output (mlp.down_proj)", 0),
    ("model.norm.weight", 5, "the final norm (model.norm)", 9),
    ("lm_head.weight", 5, "the output matrix (lm_head)", 9),
]


@pytest.mark.parametrize("name, i, place, at", FAULTS, ids=[f[0] for f in FAULTS])
def test_a_reject_names_layer_and_token_of_the_first_bad_value(headrace, tmp_path, name, i, place, at):
    model = random_model(tmp_path / "m")
    i = 64 * byte_ids("Z")[0] if i is None else i
    change_tensor(model, name, i, [NAN])
    rows = [{"id": 1, "prompt": "abcdZfghij"}]
    job = Job(headrace, tmp_path / "j", model, rows, sampling={"temperature": 0, "max_tokens": 8}, **RAW)
    got = job.run(code=REJECTS)
    where = f"{place}, at token {at} of the prompt (id {byte_ids('abcdZfghij')[at]})"
    assert job.rejects()[0]["reason"] == ("the model's logits for completion token 0 were not finite (NaN or "
                                          f"infinite): the first such value is in {where}")
    assert where in got.stderr


def test_a_bad_value_is_found_in_a_later_chunk_and_in_the_completion(headrace, tmp_path):
    model = random_model(tmp_path / "m")
    change_tensor(model, "model.embed_tokens.weight", 64 * byte_ids("Z")[0], [NAN])
    rows = [{"id": "late", "prompt": "a" * 300 + "Z" + "b" * 100},
            {"id": "own", "prompt": "say", "temperature": 1, "max_tokens": 900}]
    job = Job(headrace, tmp_path / "j", model, rows, sampling={"temperature": 0, "ignore_eos": True}, **RAW)
    job.run("--step-tokens", 32, "--max-running", 2, code=REJECTS)
    reason = {r["id"]: r["reason"] for r in job.rejects()}
    z = byte_ids("Z")[0]
    assert reason["late"].endswith(f"the token's embedding (embed_tokens), at token 300 of the prompt (id {z})")
    n = int(re.search(r"for completion token (\d+) were", reason["own"])[1])
    assert n > 0
    assert reason["own"].endswith(f"(embed_tokens), at token {n - 1} of the completion (id {z})")


def test_penalties_that_overflow_are_told_from_a_broken_model(headrace, tmp_path):
    rows = [{"id": 1, "prompt": "say", "repetition_penalty": 1e-40}]
    job = Job(headrace, tmp_path / "j", random_model(tmp_path / "m"), rows)
    got = job.run(code=REJECTS)
    assert job.rejects()[0]["reason"].endswith("the row's penalties made them overflow")
    assert "the row's penalties made them overflow" in got.stderr


@pytest.mark.parametrize("value", [0x7f80, 0xff80], ids=["inf", "-inf"])
@pytest.mark.parametrize("n", [1, 64 * 264], ids=["one", "all"])
def test_infinite_logits_give_rejects_and_no_row(headrace, tmp_path, value, n):
    model = random_model(tmp_path / "m")
    change_tensor(model, "lm_head.weight", 0, [value] * n)
    rows = [{"id": 1, "prompt": "0", "temperature": 0}, {"id": 2, "prompt": "0", "top_k": 5}]
    job = Job(headrace, tmp_path / "j", model, rows, sampling={"max_tokens": 60, "ignore_eos": True})
    job.run(code=REJECTS)
    assert job.rows() == [] and {r["id"] for r in job.rejects()} == {1, 2}


@pytest.mark.parametrize("mask", [None, 0])
def test_a_poisoned_row_leaves_its_neighbours_as_they_were(headrace, tmp_path, mask):
    """Only prompts that hold the token 'Z' meet its embedding; pages that they leave are used again."""
    args = [] if mask is None else ["--cpu-mask", mask]
    rows = [{"id": i, "prompt": ("bad Z" if i % 3 == 1 else "good") + " row" * (i % 7) + f" {i}"}
            for i in range(24)]
    sampling = {"temperature": 0, "max_tokens": 30, "ignore_eos": True}
    clean = random_model(tmp_path / "clean")
    want = Job(headrace, tmp_path / "want", clean, rows, sampling=sampling)
    want.run(*args)
    poisoned = random_model(tmp_path / "poisoned")
    change_tensor(poisoned, "model.embed_tokens.weight", 64 * byte_ids("Z")[0], [NAN] * 64)
    job = Job(headrace, tmp_path / "got", poisoned, rows, sampling=sampling)
    for i, more in enumerate(([], ["--max-running", 1], ["--kv-tokens", 192, "--max-running", 4])):
        job.run(*args, *more, out=f"out{i}", code=REJECTS)
        bad = {r["id"] for r in job.rejects(f"out{i}")}
        touched = {r["id"] for r in rows if "Z" in r["prompt"]}
        # An answer may say 'Z' itself; those rows are rejected too, and only those.
        says_z = {i for i, r in want.by_id().items() if "Z" in r["response"]}
        assert touched <= bad <= touched | says_z
        assert {i: r for i, r in want.by_id().items() if i not in bad} == job.by_id(f"out{i}")


def test_the_summary_tells_how_many_were_cut(headrace, tmp_path):
    model = chain_model(tmp_path / "m", chain("0abcdef", STOP))
    rows = [{"id": i, "prompt": "0", "max_tokens": 3 if i < 4 else 20} for i in range(10)]
    job = Job(headrace, tmp_path / "j", model, rows, sampling={"temperature": 0}, **RAW)
    got = job.run(code=DONE)
    assert "4/10" in got.stderr
    assert [r["finish_reason"] for _, r in sorted(job.by_id().items())] == ["length"] * 4 + ["stop"] * 6
    assert job.status()["rows_length"] == 4


def test_an_answer_may_be_empty(headrace, tmp_path):
    model = chain_model(tmp_path / "m", {byte_ids("0")[0]: STOP})
    row = answer(headrace, tmp_path / "j", model)
    assert ended(row) == ("", "stop", None, 1)
    assert json.dumps(row["response"]) == '""'
