# SPDX-License-Identifier: Apache-2.0
"""bad input: each bad line is one named reject and the run goes on; a wrong job is refused before it starts."""
import json
import os
import shutil
import struct

import pytest

from jobdir import DONE, REJECTS, USAGE, Job
from tinymodel import change_json, random_model, read_tensors, write_tensors

FEW = {"max_tokens": 3, "temperature": 0}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return random_model(tmp_path_factory.mktemp("model") / "tiny")


# ---- lines ------------------------------------------------------------------------------------------

def good(i):
    return json.dumps({"id": f"g{i}", "messages": [{"role": "user", "content": f"say {i}"}]}).encode()


BAD_LINES = {  # line: a word of the reason
    b"{": "malformed JSON",
    b"[]": "must be a JSON object",
    b"42": "must be a JSON object",
    b"null": "must be a JSON object",
    b'{"id":1}': "missing",
    b'{"messages":"hi"}': "list of messages",
    b'{"messages":[]}': "empty list",
    b'{"messages":[{"role":"user"}]}': "content",
    b'{"messages":[{"role":"user","content":5}]}': "content",
    b'{"messages":[{"content":"x"}]}': "role",
    b'{"id":"t","messages":[{"role":"user","content":"tr': "malformed JSON",
    b'{"id":"deep","x":' + b"[" * 100000 + b"]" * 100000 + b',"prompt":"p"}': "malformed JSON",
    b'{"id":"nul\x00","prompt":"p"}': "malformed JSON",
    b'{"id":"u8","prompt":"\xff"}': "UTF-8",
    b'{"id":"lone","prompt":"\\ud83c"}': "surrogate",
    b'{"id":"type","prompt":7}': 'field "prompt" must be a string, not 7',
    b'{"id":["l"],"prompt":"p"}': 'field "id"',
    b'{"id":"mt0","prompt":"p","max_tokens":0}': '"max_tokens"',
    b'{"id":"mt-1","prompt":"p","max_tokens":-1}': '"max_tokens"',
    b'{"id":"mts","prompt":"p","max_tokens":"8"}': '"max_tokens"',
    b'{"id":"mt8.5","prompt":"p","max_tokens":8.5}': '"max_tokens"',
    b'{"id":"tnan","prompt":"p","temperature":"hot"}': '"temperature"',
    b'{"id":"inf","prompt":"p","temperature":1e400}': '"temperature"',
    b'{"id":"stop","prompt":"p","stop":""}': '"stop"',
    b'{"id":"n0","prompt":"p","n":0}': '"n"',
    b'{"id":"20MB","prompt":"' + b"x" * (20 << 20) + b'"}': "longer than 16 MiB",
}
GOOD_LINES = [b'{"id":"dup","prompt":"first","prompt":"last"}', b'{"id":"esc-nul","prompt":"a\\u0000b"}',
              b'{"id":"crlf","prompt":"p"}\r', '{"id":"sep","prompt":"a\u2028b\u0085c\u2029d"}'.encode(),
              b'{"id":"ctl","prompt":"a\\u000b\\u000c\\u001eb"}', b'{"prompt":"no id"}',
              b'{"id":null,"prompt":"null id"}', b'{"id":"empty","prompt":""}',
              b'{"id":"null-mt","prompt":"p","max_tokens":null,"stop_token_ids":[0,1,2,3,4,5]}',
              b'{"id":"f-mt","prompt":"p","max_tokens":2.0}',
              b'{"id":"big-mt","prompt":"p","max_tokens":1e9,"stop":["\\u0000","0","1","2","3","\\""]}']


def shard():
    """All lines with their numbers: {line number: reason} for the bad ones, ids of the good ones."""
    lines, reasons = [b"\xef\xbb\xbf" + good(0), b"", b" \t ", b"\r"], {}
    for i, (line, reason) in enumerate(BAD_LINES.items()):
        lines.append(line)
        reasons[len(lines)] = reason
        lines.append(good(i + 1))
    lines += GOOD_LINES
    return b"\n".join(lines), reasons, [f"g{i}" for i in range(len(BAD_LINES) + 1)]


def test_every_line_has_one_outcome_with_its_number_once(headrace, tmp_path, tiny):
    data, reasons, ids = shard()
    job = Job(headrace, tmp_path, tiny, data, sampling=FEW)
    for i in range(3):
        job.run("--limit", 20 + 20 * i, code=REJECTS)
    job.run(code=REJECTS)
    first = job.lines("rejects.jsonl")
    got = job.run(code=REJECTS)
    assert "loaded" not in got.stderr, "nothing is left: no weights are read"
    assert job.lines("rejects.jsonl") == first
    rejects = {r["line"]: r for r in job.rejects()}
    assert len(rejects) == len(first) and set(rejects) == set(reasons)
    for line, reason in reasons.items():
        assert reason in rejects[line]["reason"], (line, rejects[line])
        assert rejects[line]["shard"].endswith("d-0.jsonl")
    rows = job.by_id()
    assert len(rows) == len(ids) + len(GOOD_LINES) and set(ids) < set(rows)
    assert rows["dup"]["prompt"] == "last"
    assert rows["sep"]["prompt"] == "a\u2028b\u0085c\u2029d"
    assert rows["f-mt"]["usage"]["completion_tokens"] <= 2
    assert job.status()["rejects"] == len(reasons)
    assert job.status()["rows_total"] == len(rows) + len(reasons)


def test_the_first_rejects_of_a_run_are_named_with_their_reasons_and_the_others_counted(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, b"[]\n" * 2 + b'{"id":"g","prompt":"p"}\n' + b"{}\n" * 15, sampling=FEW)
    got = job.run("--limit", 4, code=REJECTS)
    named = [line for line in got.stderr.splitlines() if "rejected: " in line]
    assert [line.split(":")[3].split()[0] for line in named] == ["1", "2", "4"]
    assert all(line.startswith("warning: d: ") and "d-0.jsonl:" in line for line in named)
    assert "must be a JSON object, not a list" in named[0] and 'field "prompt" is missing' in named[2]
    assert f"  rejects    3 named above; see {job.path('rejects.jsonl')}" in got.stderr
    got = job.run(code=REJECTS)
    assert got.stderr.count(" rejected: ") == 5
    assert f"  rejects    5 named above, and 12 more, see {job.path('rejects.jsonl')}" in got.stderr
    assert " rejected: " in job.path("run.log").read_text(encoding="utf-8")
    got = job.run(code=REJECTS)
    assert " rejected: " not in got.stderr and f"  rejects    17, see {job.path('rejects.jsonl')}" in got.stderr


def test_ids_of_rejected_lines_are_told_when_they_can_be_read(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, b'{"id":7,"prompt":1}\n{"id":"x","prompt":"p","n":0}\n{"id":"y"\n')
    job.run(code=REJECTS)
    assert [r.get("id") for r in job.rejects()] == [7, "x", None]


def test_equal_bad_lines_are_told_apart_and_each_is_told_once(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, b'{"id":1}\n' * 3 + good(1) + b'\n{"id":1}\n', sampling=FEW)
    job.run("--limit", 2, code=REJECTS)
    job.run(code=REJECTS)
    job.run(code=REJECTS)
    assert [r["line"] for r in job.rejects()] == [1, 2, 3, 5]
    assert job.status()["rejects"] == 4


def test_retry_rejects_tries_them_again_and_keeps_the_old_list(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, b'{"id":1,"prompt":2}\n' + good(1) + b"\n", sampling=FEW)
    job.run(code=REJECTS)
    (tmp_path / job.shards[0]).write_bytes(b'{"id":1,"prompt":"now right"}\n' + good(1) + b"\n")
    job.run("--retry-rejects", code=DONE)
    assert set(job.by_id()) == {1, "g1"} and job.rejects() == []
    assert len(job.lines("rejects.jsonl.1")) == 1
    job.run(code=DONE)


def test_retry_rejects_names_those_that_are_still_bad(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, b'{"id":1,"prompt":2}\n' + good(1) + b"\n", sampling=FEW)
    job.run(code=REJECTS)
    job.run("--retry-rejects", code=REJECTS)
    assert len(job.rejects()) == 1 and job.status()["rejects"] == 1
    job.run(code=REJECTS)


def test_the_edge_lines_of_the_kit_come_out_as_its_notes_say(headrace, tmp_path, tiny, kit):
    notes = [json.loads(s) for s in (kit / "prompts" / "edge-lines.notes.jsonl").read_text().splitlines()]
    kind = {n["line"]: n["kind"] for n in notes}
    job = Job(headrace, tmp_path, tiny, (kit / "prompts" / "edge-lines.jsonl.bin").read_bytes(),
              sampling=FEW)
    job.run("--limit", 17, code=REJECTS)
    job.run(code=REJECTS)
    lines = {r["line"]: r["reason"] for r in job.rejects()}
    assert len(lines) == len(job.rejects())
    for n, k in kind.items():
        if k == "ok-long":
            assert "context" in lines[n], "longer than this model's context"
        elif k == "ok-null-content":  # only where tool calls stand in its place
            continue
        elif k.startswith("ok") or k in ("blank", "both"):
            assert n not in lines, (n, k, lines.get(n))
        elif k.startswith("bad") or k in ("lone-surrogate", "prompt-array", "prompt-token-ids"):
            assert n in lines, (n, k)
    n_input = sum(k != "blank" for k in kind.values())
    assert len(job.rows()) + len(lines) == n_input == job.status()["rows_total"]


def test_escapes_and_raw_utf8_are_the_same_tokens(headrace, tmp_path, tiny):
    cup = "\U0001f378 \u00e9"
    raw = json.dumps({"id": 1, "prompt": cup}, ensure_ascii=False)
    job = Job(headrace, tmp_path, tiny, f'{raw}\n{json.dumps({"id": 2, "prompt": cup})}\n'.encode())
    assert "\\ud83c" in json.dumps(cup)
    out = job.run("--dry-run").stdout
    ids = [s for s in out.splitlines() if s.startswith("ids:")]
    assert len(ids) == 2 and ids[0] == ids[1] and cup in out


# ---- the context ------------------------------------------------------------------------------------

def test_a_prompt_must_leave_room_for_one_token_and_max_tokens_shrinks(headrace, tmp_path, tiny):
    n_ctx, frame = 1024, len("user\n\nassistant\n") + 3  # the template's bytes and control tokens
    rows = [{"id": f"s{i}", "prompt": f"short {i}"} for i in range(9)]
    for d in (1, 0, -1, -2):
        rows.insert(3, {"id": f"{d:+d}", "prompt": "x" * (n_ctx + d - frame), "max_tokens": 8})
    job = Job(headrace, tmp_path, tiny, rows, sampling={"max_tokens": 5, "temperature": 0, "ignore_eos": True})
    job.run(code=REJECTS)
    reasons = {r["id"]: r["reason"] for r in job.rejects()}
    assert set(reasons) == {"+1", "+0"}
    assert "1025" in reasons["+1"] and "1024" in reasons["+1"]
    by_id = job.by_id()
    assert len(by_id) == 11
    for d in (-1, -2):
        row = by_id[f"{d:+d}"]
        assert row["usage"] == {"prompt_tokens": n_ctx + d, "completion_tokens": -d}
        assert row["finish_reason"] == "length" and row["stop_reason"] == "context"
    assert "stop_reason" not in by_id["s0"] and by_id["s0"]["finish_reason"] == "length"


def test_a_prompt_far_over_the_context_is_not_counted_to_its_end(headrace, tmp_path, tiny):
    rows = [{"id": "far", "prompt": "x" * (4 << 20)}, {"id": "over", "prompt": "x" * 1500}]
    job = Job(headrace, tmp_path, tiny, rows, sampling=FEW)
    job.run(code=REJECTS)
    reasons = {r["id"]: r["reason"] for r in job.rejects()}
    rest, frame = " tokens; the model's context holds 1024, one of them for the answer", len("user\n\nassistant\n") + 3
    assert reasons["far"] == "the prompt has more than 2048" + rest
    assert reasons["over"] == f"the prompt has {1500 + frame}" + rest


def test_a_row_that_the_kv_pool_can_never_hold_is_rejected_with_the_numbers(headrace, tmp_path, tiny):
    rows = [{"id": 0, "prompt": "y" * 300}, {"id": 1, "prompt": "y"}]
    job = Job(headrace, tmp_path, tiny, rows, sampling={"max_tokens": 10, "temperature": 0})
    job.run("--kv-tokens", 128, code=REJECTS)
    assert list(job.by_id()) == [1]
    reason = job.rejects()[0]["reason"]
    assert "128" in reason and "--kv-tokens" in reason
    job.run("--retry-rejects", code=DONE)
    assert set(job.by_id()) == {0, 1}


# ---- a wrong job ------------------------------------------------------------------------------------

def refused(got, *words):
    """Exit code 2, one message that holds these words, and no weights were read."""
    assert got.returncode == USAGE, (got.returncode, got.stderr)
    errors = [s for s in got.stderr.splitlines() if s.startswith("error: ")]
    assert len(errors) == 1 and got.stderr.count("\n") <= 12, got.stderr
    assert "loaded" not in got.stderr
    for w in words:
        assert w in got.stderr, got.stderr


@pytest.fixture
def job(headrace, tmp_path, tiny):
    return Job(headrace, tmp_path, tiny, [{"id": 1, "prompt": "p"}], sampling=FEW)


def test_a_missing_manifest_is_refused(headrace, tmp_path, tiny):
    refused(headrace("run", tmp_path / "no.json", "--model", tiny, "--out", tmp_path), "no.json", "No such file")
    assert sorted(os.listdir(tmp_path)) == []


@pytest.mark.parametrize("change, words", [
    ({"promt": "prompt"}, ['"promt"', 'did you mean "prompt"']),
    ({"sampling": {"temprature": 1}}, ['"sampling.temprature"', "sampling.temperature"]),
    ({"sampling": {"temperature": "1"}}, ["temperature"]),
    ({"max_tokens": 5}, ["sampling.max_tokens"]),
    ({"shards": ["gone.jsonl"]}, ["gone.jsonl", "No such file"]),
    ({"shards": ["gone-*.jsonl"]}, ["gone-*.jsonl"]),
    ({"dataset": "../x"}, ["plain name"]),
    ({"dataset": ""}, ['"dataset"', "plain name"]),
    ({"prompt": "{a"}, ["prompt"]),
])
def test_a_wrong_manifest_is_refused_by_name(job, change, words):
    m = {"dataset": "d", "shards": job.shards, **change}
    job.manifest.write_text(json.dumps(m))
    refused(job.call(), str(job.manifest), *words)
    assert not (job.folder / "out").exists()


def test_manifests_that_are_no_json_are_refused_with_their_line(job):
    job.manifest.write_text('{"dataset": "d",\n "shards": [}\n')
    refused(job.call(), "line 2")


@pytest.mark.parametrize("args, words", [
    (["--max-running", "0"], ["--max-running"]),
    (["--temperature", "-1"], ["--temperature"]),
    (["--max-tokens", "0"], ["--max-tokens"]),
    (["--dtype", "fp8"], ["--dtype", "bf16"]),
    (["--kv-cache-dtype", "fp8"], ["fp8", "changes the model's answers"]),
    (["--kv-cache-dtype", "fp8_e4m3"], ["fp8_e4m3", "refused"]),
    (["--kv-tokens", "1G"], ["GiB", "--kv-tokens"]),
    (["--cpu-mask", "avx"], ["--cpu-mask"]),
    (["--limt", "3"], ["--limit"]),
    (["--now", "noon"], ["--now"]),
    (["--now", "2026-02-30T00:00:00"], ["--now", "2026-02-30"]),
])
def test_a_wrong_option_is_refused(job, args, words):
    refused(job.call(*args), *words)
    assert not (job.folder / "out").exists()


def test_a_model_that_is_not_there_is_refused(job):
    job.model = job.folder / "no-model"
    refused(job.call(), "no-model")


def test_a_missing_model_option_is_refused(headrace, job):
    refused(headrace("run", job.manifest, "--out", job.folder / "out"), "--model")


def test_an_unknown_architecture_is_refused_by_name(job):
    job.model = random_model(job.folder / "m", config={"architectures": ["Mamba2ForCausalLM"],
                                                       "model_type": "mamba2"})
    refused(job.call(), "mamba2")


@pytest.mark.parametrize("wrong", ['"2"', "1.5", "true", "[[1]]", "-1"])
def test_an_end_token_that_is_no_id_is_refused_as_it_stands(job, wrong):
    job.model = random_model(job.folder / "m", generation={"eos_token_id": json.loads(wrong)})
    shown = "[1]" if wrong == "[[1]]" else wrong
    refused(job.call(), f'generation_config.json: "eos_token_id" must be a token id or a list of them; {shown} is none')


def test_an_end_token_of_another_vocabulary_is_warned_of(job):
    job.model = random_model(job.folder / "m", generation={"eos_token_id": [258.0, 99999]})
    got = job.run()
    assert "warning: generation_config.json: end token 99999 is outside the tokenizer's vocabulary" in got.stderr


def test_a_chat_template_that_cannot_be_used_is_not_called_none(job):
    job.model = random_model(job.folder / "m")
    change_json(job.model / "tokenizer_config.json", {"chat_template": 5})
    refused(job.call(), "the model's chat template cannot be used", '"chat_template"', "but 5", '"chat": false')


@pytest.mark.parametrize("how", ["cut", "missing", "shape", "past the end", "overlap", "empty"])
def test_a_lying_model_is_refused_with_the_tensors_name(job, how):
    name = "model.layers.1.mlp.up_proj.weight"
    job.model = random_model(job.folder / "m")
    path = job.model / "model.safetensors"
    raw = path.read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + n])
    words = [name]
    if how == "cut":
        path.write_bytes(raw[:-1000])
        words = ["model.safetensors"]
    elif how == "empty":
        path.write_bytes(b"")
        words = ["model.safetensors"]
    elif how in ("missing", "shape"):
        tensors = read_tensors(path)
        shape, data = tensors.pop(name)
        if how == "shape":
            tensors[name] = (shape[::-1], data)
        write_tensors(path, tensors)
    else:
        a, b = head[name]["data_offsets"]
        head[name]["data_offsets"] = [a + 10**6, b + 10**6] if how == "past the end" else [a - 64, b - 64]
        text = json.dumps(head).encode()
        text += b" " * (-len(text) % 8)
        path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + n:])
        words = ["model.layers.1"] if how == "overlap" else words
    refused(job.call(), *words)


def test_a_cut_gguf_is_refused(job, model):
    job.model = job.folder / "cut.gguf"
    with open(model, "rb") as f:
        job.model.write_bytes(f.read(40 << 20))
    refused(job.call(), "cut.gguf")
    job.model.write_bytes(b"GGUF")
    refused(job.call(), "cut.gguf")


@pytest.mark.parametrize("how", ["symlink", "dot", "hard link", "folder symlink"])
def test_an_output_that_is_an_input_is_refused_and_nothing_is_touched(headrace, tmp_path, tiny, how):
    job = Job(headrace, tmp_path, tiny, [{"id": 1, "prompt": "p"}], sampling=FEW)
    before = (tmp_path / job.shards[0]).read_bytes()
    target = job.path("raw_responses.jsonl")
    target.parent.mkdir(parents=True)
    if how == "symlink":
        target.symlink_to(tmp_path / job.shards[0])
    elif how == "hard link":
        os.link(tmp_path / job.shards[0], target)
    elif how == "dot":
        shutil.move(tmp_path / job.shards[0], target)
        job.shards = ["out/./d/../d/raw_responses.jsonl"]
        job.write_manifest(sampling=FEW)
    else:
        target.parent.rmdir()
        (tmp_path / "in").mkdir()
        shutil.move(tmp_path / job.shards[0], tmp_path / "in" / "raw_responses.jsonl")
        target.parent.symlink_to(tmp_path / "in")
        job.shards = ["in/raw_responses.jsonl"]
        job.write_manifest(sampling=FEW)
    refused(job.call(), "same file", "--out")
    assert target.read_bytes() == before
    assert os.listdir(target.parent) == ["raw_responses.jsonl"]


def test_two_manifests_of_one_dataset_are_refused(headrace, job):
    refused(headrace("run", job.manifest, job.manifest, "--model", job.model, "--out", job.folder / "out"),
            'dataset "d"')


def test_a_row_edited_under_its_old_id_is_refused_by_place_and_the_rows_stay(job):
    job.run()
    before = job.path("raw_responses.jsonl").read_bytes()
    (job.folder / job.shards[0]).write_bytes(b'{"id":1,"prompt":"edited"}\n')
    got = job.call()
    refused(got, "d-0.jsonl:1", "1")
    assert job.path("raw_responses.jsonl").read_bytes() == before
