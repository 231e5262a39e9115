# SPDX-License-Identifier: Apache-2.0
"""schemas: the JSON Schemas of manifests/ accept what ships and refuse what the loader refuses."""
import copy
import json

import pytest

jsonschema = pytest.importorskip("jsonschema")


def load(root, name):
    return json.loads((root / "manifests" / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def manifest_schema(root):
    schema = load(root, "manifest.schema.json")
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.fixture(scope="module")
def row_schema(root):
    schema = load(root, "row.schema.json")
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_shipped_manifests_are_accepted(root, manifest_schema):
    names = [p.name for p in sorted((root / "manifests").glob("*.json")) if "schema" not in p.name]
    assert {"demo.json", "B2_opencodeinstruct.json"} <= set(names)
    for name in names:
        manifest_schema.validate(load(root, name))


def test_a_full_manifest_is_accepted(manifest_schema):
    manifest_schema.validate({
        "dataset": "d", "model": "m.gguf", "shards": "*.jsonl", "prompt": "{a}\n\n{b}", "id": "uuid",
        "system": "", "chat": True, "max_tokens_per_dataset": 0, "output": {"token_ids": True},
        "template_vars": {"enable_thinking": False}, "thinking": {"open": "<t>", "close": "</t>"},
        "sampling": {"temperature": 0, "top_p": 1, "top_k": -1, "min_p": 0, "repetition_penalty": 1,
                     "presence_penalty": -2, "frequency_penalty": 2, "max_tokens": None, "stop": ["a"],
                     "stop_token_ids": [0], "ignore_eos": True, "seed": -1, "n": 2}})


@pytest.mark.parametrize("change", [
    {"promt": "x"}, {"sampling": {"temprature": 0}}, {"sampling": {"top_p": 0}}, {"shards": []},
    {"sampling": {"max_tokens": 0}}, {"sampling": {"n": 0}}, {"sampling": {"stop": ""}},
    {"sampling": {"temperature": None}}, {"output": {"tokens": True}}, {"dataset": ".hidden"},
    {"dataset": "a/b"}, {"prompt": "p", "messages": "m"}, {"chat": False, "system": "s"},
    {"thinking": True}, {"thinking": {"open": "a"}}, {"thinking": {"open": "\na", "close": "b"}},
    {"thinking": {"open": "a", "close": ""}}, {"chat": False, "messages": "m"}, {"chat": "yes"}, {"max_tokens_per_dataset": -1}, {"id": None},
], ids=json.dumps)
def test_a_wrong_manifest_is_refused(manifest_schema, change):
    good = {"dataset": "d", "shards": ["a.jsonl"]}
    manifest_schema.validate(good)
    assert not manifest_schema.is_valid({**good, **change})


def test_a_manifest_without_dataset_or_shards_is_refused(manifest_schema):
    assert not manifest_schema.is_valid({"shards": ["a.jsonl"]})
    assert not manifest_schema.is_valid({"dataset": "d"})


ROW = {"id": 7, "dataset": "d", "sample": 0, "prompt": "p", "response": "r", "finish_reason": "stop",
       "usage": {"prompt_tokens": 1, "completion_tokens": 2}, "seed": 0, "metadata": {"x": 1}}


def test_rows_are_accepted_and_strangers_refused(row_schema):
    row_schema.validate(ROW)
    row_schema.validate({**ROW, "occurrence": 1, "stop_reason": "\n", "completion_token_ids": [1, 2]})
    chat = copy.deepcopy(ROW)
    chat["messages"] = [{"role": "user", "content": chat.pop("prompt")}]
    row_schema.validate(chat)
    for wrong in ({"finish_reason": "eos"}, {"occurrence": 0}, {"time": 1}, {"id": None},
                  {"messages": chat["messages"]}):
        assert not row_schema.is_valid({**ROW, **wrong})


def test_the_demo_shard_holds_rows_with_distinct_ids(root):
    rows = [json.loads(line) for line in (root / "datasets" / "demo.jsonl").open(encoding="utf-8")]
    assert len(rows) >= 20 and len({row["id"] for row in rows}) == len(rows)
    assert all(isinstance(row["prompt"], str) and row["prompt"] for row in rows)
