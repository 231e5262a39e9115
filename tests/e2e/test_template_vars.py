# SPDX-License-Identifier: Apache-2.0
"""template variables: from the manifest, from the row, the row's first; what the template saw is read back from the
prompt's ids."""
import pytest

from jobdir import REJECTS, USAGE, Job
from tinymodel import byte_ids, random_model

TEMPLATE = ("{{ 'T' if tools }}{{ tools|tojson if tools }}|{{ documents|length if documents else 0 }}"
            "|{{ enable_thinking|default('unset') }}|{{ messages[0].content }}")
TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    model = random_model(tmp_path_factory.mktemp("model") / "tiny")
    (model / "chat_template.jinja").write_text(TEMPLATE)
    return model


def seen(headrace, folder, model, rows, **manifest):
    job = Job(headrace, folder, model, rows, output={"token_ids": True},
              sampling={"temperature": 0, "max_tokens": 2}, **manifest)
    job.run()
    table = {i: bytes([b]) for b in range(256) for i in byte_ids(bytes([b]))}
    return job, {r["id"]: b"".join(table[i] for i in r["prompt_token_ids"]).decode() for r in job.rows()}


def ask(i, **more):
    return {"id": i, "prompt": "hi", **more}


def test_a_rows_variables_win_over_the_manifests(headrace, tmp_path, tiny):
    rows = [ask(0), ask(1, chat_template_kwargs={"enable_thinking": True}), ask(2, chat_template_kwargs=None),
            ask(3, tools=[TOOL]), ask(4, documents=[{"title": "a"}, {"title": "b"}]), ask(5, documents=[]),
            ask(6, documents=None)]
    job, text = seen(headrace, tmp_path, tiny, rows,
                     template_vars={"enable_thinking": False, "documents": [{"title": "m"}]})
    assert text[0] == "|1|False|hi" and text[1] == "|1|True|hi" and text[2] == "|1|False|hi"
    assert text[3].startswith('T[{"type": "function"') and text[4] == "|2|False|hi"
    by_id = job.by_id()
    assert by_id[1]["chat_template_kwargs"] == {"enable_thinking": True} and by_id[1]["metadata"] == {}
    assert by_id[4]["documents"] == [{"title": "a"}, {"title": "b"}]
    assert text[5] == "|0|False|hi" and by_id[5]["documents"] == [] and by_id[5]["metadata"] == {}
    assert text[6] == "|1|False|hi" and by_id[6]["metadata"] == {"documents": None}
    assert "chat_template_kwargs" not in by_id[2] and "documents" not in by_id[0]


def test_a_manifests_tools_serve_rows_without_their_own(headrace, tmp_path, tiny):
    other = {"type": "function", "function": {"name": "g"}}
    _, text = seen(headrace, tmp_path, tiny, [ask(0), ask(1, tools=[other])], template_vars={"tools": [TOOL]})
    assert '"name": "f"' in text[0] and '"name": "g"' in text[1] and '"name": "f"' not in text[1]


def test_a_field_named_documents_of_another_kind_is_carried(headrace, tmp_path, tiny):
    rows = [ask(0, documents="a.pdf"), ask(1, documents={"title": "a"}), ask(2, documents=None)]
    job, text = seen(headrace, tmp_path, tiny, rows)
    assert set(text.values()) == {"|0|unset|hi"}
    assert [job.by_id()[i]["metadata"] for i in range(3)] == [{"documents": r["documents"]} for r in rows]


def test_variables_are_part_of_what_is_asked(headrace, tmp_path, tiny):
    same = {"prompt": "hi"}
    rows = [same, {**same, "chat_template_kwargs": {"enable_thinking": True}},
            {**same, "chat_template_kwargs": {"enable_thinking": False}}, {**same, "documents": [{"title": "a"}]},
            {**same, "chat_template_kwargs": {}}]
    job, text = seen(headrace, tmp_path, tiny, rows)
    assert len(text) == 4  # the last asks what the first one does
    assert sorted(r.get("occurrence", 0) for r in job.rows()) == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("bad", [["a.pdf"], [{"title": "a"}, 5], [None], [[]]])
def test_a_document_that_is_no_object_rejects_the_row(headrace, tmp_path, tiny, bad):
    job = Job(headrace, tmp_path, tiny, [ask(0, documents=bad), ask(1)], sampling={"max_tokens": 2},
              template_vars={"documents": [{"title": "m"}]})
    job.run(code=REJECTS)
    assert set(job.by_id()) == {1}
    assert 'a document in field "documents" must be an object, not ' in job.rejects()[0]["reason"]


@pytest.mark.parametrize("bad,said", [([1], "must be an object"), ("x", "must be an object"),
                                      ({"messages": []}, "set by headrace itself"),
                                      ({"add_generation_prompt": False}, "set by headrace itself"),
                                      ({"": 1}, "names of 1 to 63 bytes"),
                                      ({f"v{i}": i for i in range(33)}, "at most 32 variables")])
def test_wrong_variables_reject_the_row_by_name(headrace, tmp_path, tiny, bad, said):
    job = Job(headrace, tmp_path, tiny, [ask(0, chat_template_kwargs=bad), ask(1)], sampling={"max_tokens": 2})
    job.run(code=REJECTS)
    assert set(job.by_id()) == {1}
    assert "chat_template_kwargs" in job.rejects()[0]["reason"] and said in job.rejects()[0]["reason"]


@pytest.mark.parametrize("key,value", [("tools", {}), ("documents", "x"), ("messages", [])])
def test_wrong_variables_of_a_manifest_are_refused(headrace, tmp_path, tiny, key, value):
    job = Job(headrace, tmp_path, tiny, [ask(0)], template_vars={key: value})
    got = job.run(code=USAGE)
    assert f'"{key}"' in got.stderr
