# SPDX-License-Identifier: Apache-2.0
"""rows: what an output row carries: its identity, the input's own bytes, the shape that the schema says."""
import bz2
import ctypes
import ctypes.util
import gzip
import hashlib
import json
import re
import shutil

import pytest

from jobdir import REJECTS, USAGE, Job, jsonl
from tinymodel import random_model

jsonschema = pytest.importorskip("jsonschema")
SHORT = {"temperature": 0, "max_tokens": 3, "ignore_eos": True}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return random_model(tmp_path_factory.mktemp("model") / "tiny")


def test_carried_fields_are_the_inputs_own_bytes(headrace, tmp_path, tiny):
    fields = [r'"big":12345678901234567890123', r'"x":1e400', r'"y":0.10', r'"z":-0', r'"e":1E+2',
              r'"u":"\u00e9 \/ \ud83c\udf78"', '"raw":"\u00e9 \u2028 \u0085"', r'"nest":{"a":[1, 2.50,{"b":null}]}',
              r'"\u006bey":true', r'"empty":{}', r'"s":"a\tb"']
    line = '{"id":9007199254740993,' + ",".join(fields) + ',"prompt":"p"}'
    job = Job(headrace, tmp_path, tiny, line.encode() + b"\n" + line.replace("993", "992").encode() + b"\r\n",
              sampling=SHORT)
    job.run()
    assert len(job.lines()) == 2, "two ids beyond 2^53 are two rows"
    for row, end in zip(sorted(job.lines()), ("992", "993")):
        text = row.decode()
        assert text.endswith('"metadata":{' + ",".join(fields) + "}}"), text
        assert text.startswith('{"id":9007199254740' + end + ",")


def test_white_space_between_the_fields_may_go_but_inside_values_stays(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, b'{ "id" : "i" , "prompt" : "p" , "m" : [ 1 ,\t2 ] }\n', sampling=SHORT)
    job.run()
    assert job.lines()[0].endswith(b'"metadata":{"m":[ 1 ,\t2 ]}}')


def test_every_kind_of_row_is_as_the_schema_says(headrace, tmp_path, tiny, root):
    schema = json.loads((root / "manifests" / "row.schema.json").read_text(encoding="utf-8"))
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    parts = [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]
    rows = [{"id": "a", "prompt": "p", "n": 2, "temperature": 1}, {"id": 1.5, "prompt": "p"}, {"prompt": "no id"},
            {"prompt": "no id"}, {"id": "m", "messages": parts}, {"id": "t", "messages": parts, "tools": tools},
            {"id": "s", "prompt": "p", "stop": "\u0000", "max_tokens": 50},
            {"id": "c", "prompt": "x" * 995, "max_tokens": None}, {"id": "a", "prompt": "other"}]
    job = Job(headrace, tmp_path, tiny, rows, sampling=SHORT, output={"token_ids": True})
    job.run()
    for row in job.rows():
        jsonschema.Draft202012Validator(schema).validate(row)
        assert len(row["prompt_token_ids"]) == row["usage"]["prompt_tokens"]
        assert len(row["completion_token_ids"]) == row["usage"]["completion_tokens"]
        assert ("prompt" in row) != ("messages" in row)
    assert len(job.rows()) == 10
    assert sum(r.get("stop_reason") == "context" for r in job.rows()) == 1
    hashes = [r["id"] for r in job.rows() if r.get("prompt") == "no id"]
    assert len(hashes) == 2 and len(set(hashes)) == 1 and re.fullmatch("[0-9a-f]{32}", hashes[0])
    assert sorted((r["sample"], r.get("occurrence", 0)) for r in job.rows() if r["id"] == "a") == \
        [(0, 0), (0, 1), (1, 0)]


def test_tools_and_parts_stay_as_sent(headrace, tmp_path, tiny):
    line = (rb'{"id":1,"messages":[{"role":"user","content":"\u0041 \/"}],"tools":[{"type" :"function","x":1.0}],'
            rb'"k":1}')
    job = Job(headrace, tmp_path, tiny, line + b"\n", sampling=SHORT)
    job.run()
    assert rb'"messages":[{"role":"user","content":"\u0041 \/"}],"tools":[{"type" :"function","x":1.0}]' in \
        job.lines()[0]
    assert job.lines()[0].endswith(b'"metadata":{"k":1}}')


SHOWN = "{% for m in messages %}[{% for k, v in m.items() %}{{ k }}={{ v }};{% endfor %}]{% endfor %}{{ tools }}"


def test_the_template_sees_messages_as_transformers_hands_them_over(headrace, tmp_path, tiny):
    """Null keys are gone, reasoning has its names, tools in a string are tools; the row shows what was sent."""
    model = shutil.copytree(tiny, tmp_path / "m")
    (model / "chat_template.jinja").write_text(SHOWN, encoding="utf-8")
    messages = [{"role": "user", "content": "q", "name": None},
                {"role": "assistant", "content": None, "tool_calls": [], "reasoning": "r"},
                {"role": "user", "content": [{"type": "text", "text": "t", "image": None}]}]
    rows = [{"id": 1, "messages": messages, "tools": '[{"a": 1}]'}]
    job = Job(headrace, tmp_path / "j", model, rows, sampling=SHORT)
    shown = job.run("--dry-run").stdout
    assert ("[role=user;content=q;][thinking=r;role=assistant;tool_calls=[];reasoning=r;reasoning_content=r;]"
            "[role=user;content=[{'type': 'text', 'text': 't'}];][{'a': 1}]") in shown
    job.run()
    assert job.rows()[0]["messages"] == messages and job.rows()[0]["tools"] == [{"a": 1}]


def test_a_run_says_which_template_it_uses(headrace, tmp_path, tiny):
    model = shutil.copytree(tiny, tmp_path / "m")
    (model / "chat_template.jinja").write_text("A{{ messages[0].content }}", encoding="utf-8")
    (model / "additional_chat_templates").mkdir()
    tools = model / "additional_chat_templates" / "tool_use.jinja"
    tools.write_text("T{{ messages[0].content }}", encoding="utf-8")
    rows = [{"id": 1, "prompt": "x"}, {"id": 2, "prompt": "x", "tools": []}]
    job = Job(headrace, tmp_path / "j", model, rows, sampling=SHORT)
    got = job.run()
    said = [hashlib.sha256(p.read_bytes()).hexdigest()[:16] for p in (model / "chat_template.jinja", tools)]
    line = (f"template: chat_template.jinja (sha256 {said[0]}); for rows with tools "
            f"additional_chat_templates/tool_use.jinja (sha256 {said[1]})")
    assert line in got.stderr.splitlines()
    assert f" info {line}\n" in job.path("run.log").read_text(encoding="utf-8")
    raw = Job(headrace, tmp_path / "raw", model, rows, sampling=SHORT, chat=False)
    assert "template:" not in raw.run().stderr


def test_joined_prompts_and_system_turns_are_in_the_row(headrace, tmp_path, tiny):
    rows = [{"id": 1, "instruction": "Add.", "input": "1 2", "output": "3"}, {"id": 2, "instruction": "Say."}]
    job = Job(headrace, tmp_path, tiny, rows, sampling=SHORT, prompt="{instruction}\n\n{input}", system="Be brief.")
    job.run()
    assert {r["id"]: (r["prompt"], r["metadata"]) for r in job.rows()} == \
        {1: ("Add.\n\n1 2", {"output": "3"}), 2: ("Say.", {})}
    shown = job.run("--dry-run").stdout
    assert "system\nBe brief.<<<|im_end|>>>" in shown and "user\nAdd.\n\n1 2<<<|im_end|>>>" in shown


def zstd(data):
    lib = ctypes.CDLL(ctypes.util.find_library("zstd") or pytest.skip("libzstd is not there"))
    bound = lib.ZSTD_compressBound
    bound.restype = lib.ZSTD_compress.restype = ctypes.c_size_t
    out = ctypes.create_string_buffer(bound(ctypes.c_size_t(len(data))))
    n = lib.ZSTD_compress(out, ctypes.c_size_t(len(out)), data, ctypes.c_size_t(len(data)), 3)
    return out.raw[:n]


@pytest.mark.parametrize("suffix, pack", [(".gz", gzip.compress), (".zst", zstd)], ids=["gz", "zst"])
def test_compressed_shards_give_the_same_rows(headrace, tmp_path, tiny, suffix, pack):
    rows = [{"id": i, "prompt": f"say {i}", "pad": "x" * (i * 50)} for i in range(40)]
    want = Job(headrace, tmp_path / "plain", tiny, rows, sampling=SHORT).sorted_lines(out="out")
    job = Job(headrace, tmp_path / "packed", tiny, rows, sampling=SHORT)
    data = jsonl(rows)
    # Two members (frames) one after the other, as parallel compressors write them.
    (job.folder / f"d-0.jsonl{suffix}").write_bytes(pack(data[:3000]) + pack(data[3000:]))
    job.shards = [f"d-0.jsonl{suffix}"]
    job.write_manifest(sampling=SHORT)
    assert job.sorted_lines(out="out") == want


@pytest.mark.parametrize("suffix, pack", [(".gz", gzip.compress), (".zst", zstd)], ids=["gz", "zst"])
def test_a_broken_compressed_shard_gives_what_is_whole_and_one_reject(headrace, tmp_path, tiny, suffix, pack):
    rows = [{"id": i, "prompt": f"say {i}"} for i in range(30)]
    job = Job(headrace, tmp_path, tiny, rows, sampling=SHORT)
    whole = pack(jsonl(rows[:10]))
    (tmp_path / f"torn.jsonl{suffix}").write_bytes(whole + pack(jsonl(rows[10:20]))[:-20])
    job.shards = [f"torn.jsonl{suffix}", "d-0.jsonl"]
    job.write_manifest(sampling=SHORT)
    for _ in range(2):
        job.run(code=REJECTS)
    ids = [r["id"] for r in job.rows()]
    assert set(range(30)) == set(ids)
    assert len(job.rejects()) == 1 and "torn.jsonl" in job.rejects()[0]["shard"]


def test_a_shard_of_another_codec_is_no_rows_and_no_crash(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, bz2.compress(b'{"id":1,"prompt":"p"}\n'), sampling=SHORT)
    assert job.call().returncode in (REJECTS, USAGE)
    assert job.rows() == []


def test_a_row_without_a_final_newline_counts(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, b'{"id":1,"prompt":"a"}\n{"id":2,"prompt":"b"}', sampling=SHORT)
    job.run()
    assert set(job.by_id()) == {1, 2}


def test_an_empty_shard_is_all_done(headrace, tmp_path, tiny):
    job = Job(headrace, tmp_path, tiny, b"\n \n", sampling=SHORT)
    got = job.run()
    assert "0 of 0 rows" in got.stderr and "loaded" not in got.stderr
