"""The page: what it holds, that it is closed and bounded, its colours, how it is written."""

import base64
import json
import os
import re
import stat
import threading
from html.parser import HTMLParser
from importlib import resources

import numpy as np
import pytest

from regard import RegardError, ShapeError, _files, viz

HOSTILE = [
    "[CLS]",
    "</script><script>window.ran = 1</script>",
    "</script >",
    "<img src=x onerror='window.ran = 1'>",
    "<!--",
    "a\u2028b\u2029c",
    "{{title}} {{data}} {{script}}",
    "&lt;",
    "\x1b[31m",
    "\u202e",
    "\udc80",
]


def script_json(page):
    return re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)[1]


def page_data(page):
    return json.loads(script_json(page))


def page_weights(data):
    """Decode a page's weights as its scripts do; with those it does not list at the mean of their row's rest."""
    shape = data["layers"], data["heads"], len(data["tokens"]), -1
    roots, places = (np.frombuffer(base64.b64decode(data[name]), "<u2") for name in ("roots", "places"))
    weights = (roots.reshape(shape) / 65535) ** 2
    if data["kept"] == len(data["tokens"]):
        return weights
    full = np.repeat(weights[..., -1:], len(data["tokens"]), axis=-1)
    np.put_along_axis(full, places.reshape(shape).astype(int), weights[..., :-1], axis=-1)
    return full


def random_weights(layers, heads, size, concentration=0.2):
    random = np.random.default_rng(3)
    return random.dirichlet(np.full(size, concentration), (layers, heads, size)).astype(np.float32)


def small_page(tokens, **options):
    return viz.AttentionPage(tokens, random_weights(1, 1, len(tokens)), **options)


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


# --- what the page holds --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 128])
def test_all_weights_within_the_promised_error(size):
    weights = random_weights(1, 2, size)
    weights[0, 0, 0] = 1 / size
    page = viz.AttentionPage(["x"] * size, weights)
    data = page_data(page.html)
    assert page.kept == data["kept"] == size
    assert (np.abs(page_weights(data) - weights) <= np.sqrt(weights) / 65535 + 6e-11 + 1e-7 * weights).all()


def test_long_texts_keep_the_largest_of_each_row():
    weights = random_weights(6, 12, 300)
    weights[0, 0, 0] = 1 / 300
    page = viz.AttentionPage(["x"] * 300, weights)
    data = page_data(page.html)
    shown, kept = page_weights(data), page.kept
    assert 50 < kept < 300
    largest = -np.sort(-weights, axis=-1)[..., kept - 1 : kept]
    listed = weights > largest
    assert listed.sum() > 0.9 * kept * 6 * 12 * 300
    assert (np.abs(shown - weights)[listed] <= (np.sqrt(weights) / 65535 + 1e-6)[listed]).all()
    assert (shown <= largest + np.sqrt(largest) / 65535 + 1e-6)[~listed].all()
    assert np.abs(shown.sum(axis=-1) - 1).max() < 1e-3  # nothing is lost
    assert np.abs(shown[0, 0, 0] * 300 - 1).max() < 1e-2  # uniform attention is not rounded away


@pytest.mark.parametrize("shape", [(6, 12, 198), (6, 12, 199), (6, 12, 512), (24, 16, 128)])
def test_size_is_bounded(shape):
    layers, heads, size = shape
    weights = np.broadcast_to(np.float32(1 / size), (layers, heads, size, size))
    page = viz.AttentionPage(["token" * 4] * size, weights, text="long " * 100_000)
    assert len(page.html) <= 8_000_000
    assert len(page.html) > 5_000_000  # and the room is used
    assert page.kept >= 24
    assert page_data(page.html)["kept"] == page.kept


def test_more_than_a_page_can_hold():
    weights = np.broadcast_to(np.float32(1), (2_000_000, 1, 2, 2))
    with pytest.raises(ShapeError, match="too many for a page"):
        viz.AttentionPage(["a", "b"], weights)


def test_opening_and_source():
    opening = viz.Opening(1, 2, range(1, 3), (0,))
    page = viz.AttentionPage(["a", "b", "##c"], random_weights(2, 3, 3), source="model m", opening=opening)
    data = page_data(page.html)
    assert [data[name] for name in ("layer", "head", "word", "target")] == [1, 2, [1, 2], [0]]
    assert data["source"] == "model m"


@pytest.mark.parametrize(
    "opening",
    [viz.Opening(2, 0), viz.Opening(0, 3), viz.Opening(-1, 0), viz.Opening(word=()), viz.Opening(word=(3,)),
     viz.Opening(target=(0, 3))],
)  # fmt: skip
def test_opening_that_does_not_exist(opening):
    with pytest.raises(ShapeError, match=r"there is no Opening\(.* among 2 layers of 3 heads and 3 tokens"):
        viz.AttentionPage(["a", "b", "c"], random_weights(2, 3, 3), opening=opening)


@pytest.mark.parametrize("shape", [(2, 2, 3, 2), (2, 3, 3), (0, 2, 3, 3), (2, 2, 4, 4)])
def test_weights_of_the_wrong_shape(shape):
    with pytest.raises(ShapeError, match="for 3 tokens"):
        viz.AttentionPage(["a", "b", "c"], np.zeros(shape))


@pytest.mark.parametrize("wrong", [np.nan, -0.1, 1.1])
def test_what_is_no_weight(wrong):
    with pytest.raises(RegardError, match=r"attention weights are in \[0, 1\]"):
        viz.AttentionPage(["a"], np.full((1, 1, 1, 1), wrong))


# --- that it is closed ----------------------------------------------------------------------------


class _Tags(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs


def test_hostile_tokens_are_data():
    plain = small_page(["x"] * len(HOSTILE)).html
    page = small_page(HOSTILE, title="<b>{{data}}\udc80é</b>", text="".join(HOSTILE), source="</script>").html
    data = page_data(page)
    assert not set("<>&") & set(script_json(page))
    assert data["tokens"] == HOSTILE
    assert data["title"] == "<b>{{data}}\udc80é</b>"
    assert _Tags(page).tags == _Tags(plain).tags
    assert "<title>&lt;b&gt;{{data}}&#56448;&#233;&lt;/b&gt;</title>" in page
    assert page.isascii()


def test_page_is_closed():
    page = small_page(["a", "b"]).html
    tags = _Tags(page)
    assert not {"src", "href", "srcset", "action"} & {name for name, _ in tags.attributes}
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(tags.tags)
    assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttpRequest|WebSocket|import\(|innerHTML|eval\(", page)
    assert "default-src 'none'" in page
    assert len(page) < 40_000
    assert "They are not an explanation of the model's answer" in page


def test_notebooks_get_a_frame_of_its_own():
    page = small_page(HOSTILE)
    tags = _Tags(page._repr_html_())
    assert tags.tags == ["iframe"]
    attributes = dict(tags.attributes)
    assert attributes["sandbox"] == "allow-scripts"
    assert attributes["srcdoc"] == page.html


# --- its colours ----------------------------------------------------------------------------------

# What a red-, a green- and a blue-blind eye sees of linear RGB (Machado, Oliveira & Fernandes 2009, severity 1).
BLIND = {
    "none": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lightness_steps(stops, eye):
    """Differences of CIE lightness from stop to stop."""
    linear = np.where((c := np.array(stops) / 255) <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    luminance = (linear @ np.array(BLIND[eye]).T).clip(0, 1) @ [0.2126, 0.7152, 0.0722]
    return np.diff(np.where(luminance > 0.008856, 116 * np.cbrt(luminance) - 16, 903.3 * luminance))


@pytest.mark.parametrize("eye", BLIND)
def test_colours_survive_colour_blindness(eye):
    script = resources.files("regard.viz").joinpath("assets").joinpath("draw.js").read_text()
    ramps = {name: json.loads(stops) for name, stops in re.findall(r"(light|dark): (\[\[.*\]\])", script)}
    assert (lightness_steps(ramps["light"], eye) < -4).all()
    assert (lightness_steps(ramps["dark"], eye) > 4).all()
    rainbow = [[0, 0, 255], [0, 255, 255], [0, 255, 0], [255, 255, 0], [255, 0, 0]]
    assert not (lightness_steps(rainbow, eye) > 4).all()


# --- writing --------------------------------------------------------------------------------------


def test_write_replaces_whole(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o600)
    page = small_page(["a"])
    page.write(path)
    assert path.read_bytes() == page.html.encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_failed_write_leaves_the_old_page_and_nothing_else(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(UnicodeEncodeError):
        _files.write_whole(path, "new \udc80")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_temporary_is_exclusive(tmp_path, monkeypatch):
    monkeypatch.setattr(_files.secrets, "token_hex", lambda n: "same")
    other = tmp_path / ".regard-same.part"
    other.write_text("somebody else's", encoding="utf-8")
    with pytest.raises(RegardError, match="File exists"):
        _files.write_whole(tmp_path / "page.html", "new")
    assert other.read_text(encoding="utf-8") == "somebody else's"


@pytest.mark.parametrize("exists", [True, False])
def test_links_are_followed(tmp_path, exists):
    there = tmp_path / "there"
    there.mkdir()
    if exists:
        (there / "page.html").touch()
    link = tmp_path / "link.html"
    link.symlink_to(there / "page.html")
    _files.write_whole(link, "new")
    assert link.is_symlink()
    assert (there / "page.html").read_text() == "new"


@pytest.mark.parametrize("through_link", [True, False])
def test_a_pipe_is_written_to_and_stays(tmp_path, through_link):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    path = pipe
    if through_link:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    _files.write_whole(path, "page")
    reader.join(10)
    assert read == ["page"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert path.is_symlink() == through_link


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere/page.html", "there is no directory nowhere"),
        ("file/page.html", "Not a directory"),
        (".", "it is a directory"),
        ("loop", "symbolic links"),
        ("x" * 300, "File name too long"),
    ],
)
def test_places_that_cannot_be_written(tmp_path, monkeypatch, place, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    for refuse in (viz.destination, small_page(["a"]).write):
        with pytest.raises(RegardError, match=f"cannot write {re.escape(place)}: .*{message}"):
            refuse(place)


def test_a_name_is_needed():
    with pytest.raises(RegardError, match="has no name"):
        viz.destination("")


def test_what_may_not_be_written_is_said_before(tmp_path, monkeypatch):
    """The superuser may write everywhere, so the answer of the system is put in."""
    monkeypatch.setattr(_files.os, "access", lambda path, mode: False)
    (tmp_path / "old.html").touch()
    with pytest.raises(RegardError, match="you may not write it"):
        viz.destination(tmp_path / "old.html")
    with pytest.raises(RegardError, match="you may not write to "):
        viz.destination(tmp_path / "new.html")
