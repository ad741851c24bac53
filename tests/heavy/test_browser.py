"""The page in a real browser: what it shows, what its keys do, and that it asks for nothing."""

import json

import numpy as np
import pytest
from playwright.sync_api import sync_playwright

from regard import models, viz
from test_page import HOSTILE, random_weights

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
TOKENS = ["[CLS]", "the", "token", "##ization", "of", "the", "café", "didn", "'", "t", "stop", "[SEP]"]
WEIGHTS = random_weights(3, 4, len(TOKENS))
OPENING = viz.Opening(1, 2, (2, 3), (7, 8))


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        yield browser
        browser.close()


class Opened:
    """A page in the browser, and all that it asked for, complained of, or popped up."""

    def __init__(self, browser, path, **options):
        self.requests, self.trouble = [], []
        self.tab = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.tab.on("console", lambda message: self.trouble.append(message.text))
        self.tab.on("dialog", lambda dialog: (self.trouble.append(dialog.message), dialog.dismiss()))
        self.tab.goto(path.as_uri())

    def assert_quiet(self):
        assert [url for url in self.requests if not url.startswith("file://")] == []
        assert len(self.requests) == 1
        assert self.trouble == []

    def text(self, selector):
        return self.tab.locator(selector).inner_text()

    def chips(self, selector=""):
        return self.tab.locator(f".chip{selector}").all_text_contents()

    @property
    def head(self):
        return self.tab.evaluate("[layer, head]")

    @property
    def marks(self):
        return self.tab.evaluate("[from, to]")

    def order(self):
        """Layer and head of each map of the overview, as they stand."""
        return self.tab.evaluate("[...grid.querySelectorAll('button')].map(cell => [cell.layer, cell.head])")


@pytest.fixture
def opened(browser, tmp_path):
    """Open an `AttentionPage`; whatever the test did with it, it must have stayed quiet."""
    pages = []

    def open_(page, **options):
        path = tmp_path / f"{len(pages)}.html"
        page.write(path)
        pages.append(Opened(browser, path, **options))
        return pages[-1]

    yield open_
    for page in pages:
        page.assert_quiet()
        page.tab.close()


@pytest.fixture
def page(opened):
    return opened(viz.AttentionPage(TOKENS, WEIGHTS, opening=OPENING))


def share(layer, head, word, target):
    return WEIGHTS[layer, head][list(word)].mean(axis=0)[list(target)].sum()


# --- what is shown first --------------------------------------------------------------------------


def test_default_page(opened, tmp_path):
    encoder = models.load(models.default_model_folder())
    encoded = encoder.encode("The animal didn't cross the street because it was too tired.")
    weights = encoder.forward(encoded.ids).weights()
    page = opened(viz.AttentionPage(encoded.tokens, weights, opening=viz.Opening(3, 1, (10,), (2,)), source="a model"))
    assert page.chips() == encoded.tokens
    assert page.text("#question") == "it → animal 0.68 in layer 3, head 1"
    assert page.text("#looks li:first-child") == "animal\n0.68"
    assert page.text("#source") == "a model; 16 tokens, 6 layers of 12 heads"
    assert "not an explanation of the model's answer" in page.text("header")
    assert page.text("#kept") == ""


def test_rows_are_averaged_and_columns_summed(page):
    weight = share(1, 2, (2, 3), (7, 8))
    assert page.text("#question") == f"tokenization → didn ' {weight:.2f} in layer 1, head 2"
    assert page.chips("[aria-pressed=true]") == ["token", "##ization"]
    assert page.chips(".target") == ["didn", "'"]
    words = [(0,), (1,), (2, 3), (4,), (5,), (6,), (7,), (8,), (9,), (10,), (11,)]
    shown = page.tab.locator("#looks span").all_text_contents()
    expected = sorted((share(1, 2, (2, 3), word) for word in words), reverse=True)[:10]
    assert [float(number.replace("< ", "")) for number in shown] == pytest.approx(expected, abs=6e-3)


def test_words_have_the_names_of_the_command_line(page):
    assert {"the#1", "the#2", "tokenization"} <= set(page.tab.evaluate("labels"))
    assert page.tab.evaluate("labelOf([3, 4])") == "##ization in tokenization of"


def test_hostile_tokens_are_shown_and_never_run(opened):
    page = opened(
        viz.AttentionPage(HOSTILE, random_weights(1, 1, len(HOSTILE)), title="<b>t</b>", text="".join(HOSTILE))
    )
    shown = page.tab.evaluate("JSON.stringify([...document.querySelectorAll('.chip')].map(chip => chip.textContent))")
    assert json.loads(shown)[:-1] == HOSTILE[:-1]
    for at in range(len(HOSTILE)):
        page.tab.locator(".chip").nth(at).click()
    page.tab.fill("#search", "<img src=x onerror='window.ran = 1'>")
    page.tab.press("#search", "Enter")
    assert page.text("h1") == "<b>t</b>"
    assert page.tab.evaluate("window.ran") is None
    assert page.tab.locator("script").count() == 2
    assert page.tab.locator("img").count() == 0


def test_the_judges_can_say_no(browser, tmp_path):
    path = tmp_path / "open.html"
    path.write_text("<p>x</p><img src='http://127.0.0.1:9/x.png'>")
    with pytest.raises(AssertionError, match=r"127\.0\.0\.1"):
        Opened(browser, path).assert_quiet()
    path.write_text("<script>alert('ran')</script>")
    with pytest.raises(AssertionError, match="ran"):
        Opened(browser, path).assert_quiet()


# --- keys, clicks, hover --------------------------------------------------------------------------


def test_arrow_keys_on_words(page):
    page.tab.locator(".chip").nth(2).focus()
    page.tab.keyboard.press("ArrowRight")
    assert page.marks[0] == [4]
    page.tab.keyboard.press("ArrowLeft")
    assert page.marks[0] == [2, 3]
    for _ in range(5):
        page.tab.keyboard.press("ArrowLeft")
    assert page.marks[0] == [0]
    assert page.tab.evaluate("document.activeElement.textContent") == "[CLS]"


@pytest.mark.parametrize("order", ["place", "focus"])
def test_arrow_keys_on_heads(page, order):
    page.tab.select_option("#order", order)
    columns = (
        4 if order == "place" else page.tab.evaluate("getComputedStyle(grid).gridTemplateColumns.split(' ').length")
    )
    heads = page.order()
    at = heads.index([1, 2])
    page.tab.locator("#grid [aria-pressed=true]").focus()
    for key, step in (("ArrowUp", -columns), ("ArrowDown", columns), ("ArrowRight", 1), ("ArrowLeft", -1)):
        before = page.head
        page.tab.keyboard.press(key)
        row_kept = abs(step) > 1 or (at + step) // columns == at // columns
        if 0 <= at + step < len(heads) and row_kept:
            at += step
        else:
            assert page.head == before
        assert page.head == heads[at]
        assert page.tab.evaluate("[document.activeElement.layer, document.activeElement.head]") == page.head


def test_arrow_keys_on_the_map(page):
    page.tab.locator("#map").focus()
    page.tab.keyboard.press("ArrowDown")
    page.tab.keyboard.press("ArrowLeft")
    assert page.marks == [[3], [6]]
    assert page.text("#question").startswith("##ization in tokenization → café ")
    for _ in range(20):
        page.tab.keyboard.press("ArrowRight")
    assert page.marks == [[3], [11]]


def test_clicks(page):
    page.tab.locator(".chip").nth(3).click()
    assert page.marks[0] == [2, 3]
    words = [[at] for at in (0, 1, 4, 5, 6, 7, 8, 9, 10, 11)] + [[2, 3]]
    page.tab.locator("#looks button").nth(1).click()
    assert page.marks[1] == sorted(words, key=lambda word: -share(1, 2, (2, 3), word))[1]
    assert page.tab.locator("#looks button[aria-pressed=true]").count() == 1
    page.tab.get_by_role("button", name="layer 2, head 3", exact=True).click()
    assert page.head == [2, 3]
    assert page.text("#head") == "Layer 2, head 3"
    page.tab.keyboard.press("Escape")
    assert page.marks[1] == []


def _cell(page, i, j):
    room, cell = page.tab.evaluate("[frame.room, frame.cell]")
    return {"x": room + (j + 0.5) * cell, "y": room + (i + 0.5) * cell}


def test_hover_reads_out_and_a_click_selects(page):
    page.tab.hover("#map", position=_cell(page, 5, 6))
    assert page.text("#readout") == f"the#2 → café   {WEIGHTS[1, 2, 5, 6]:.{2 if WEIGHTS[1, 2, 5, 6] > 0.0995 else 3}f}"
    assert page.marks == [[2, 3], [7, 8]]
    page.tab.click("#map", position=_cell(page, 5, 6))
    assert page.marks == [[5], [6]]
    page.tab.hover("h1")
    page.tab.locator(".chip").nth(10).hover()
    assert page.text("#readout").startswith("the#2 → stop ")
    page.tab.hover("h1")
    assert page.text("#readout").startswith("the#2 → café ")


# --- finding a word -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("THE", ["the", "the"]),
        ("tokenization", ["token", "##ization"]),
        ("didn't", ["didn", "'", "t"]),
        ("cafe", ["café"]),
        ("tökenizátion", ["token", "##ization"]),
        ("[sep]", ["[SEP]"]),
        ("the cafe", ["the", "café"]),
        ("kenizat", ["token", "##ization"]),
        ("theof", []),
        ("zebra", []),
    ],
)
def test_search(page, text, found):
    page.tab.fill("#search", text)
    assert page.chips(".found") == found
    assert page.text("#found") == (f"{2 if text == 'THE' else 1} found" if found else "not found")
    opacity = page.tab.locator(".chip").nth(4).evaluate("chip => getComputedStyle(chip).opacity")
    assert float(opacity) < 0.5
    page.tab.fill("#search", "")
    assert page.chips(".found") == []


def test_search_goes_from_one_to_the_next(page):
    page.tab.keyboard.press("/")
    page.tab.keyboard.type("the")
    for key, marked, said in (("Enter", [1], "1 of 2"), ("Enter", [5], "2 of 2"), ("Enter", [1], "1 of 2"),
                              ("Shift+Enter", [5], "2 of 2")):  # fmt: skip
        page.tab.keyboard.press(key)
        assert page.marks[0] == marked
        assert page.text("#found") == said
    page.tab.fill("#search", "didn't")
    page.tab.press("#search", "Enter")
    assert page.marks[0] == [7, 8, 9]


# --- the overview ---------------------------------------------------------------------------------


def test_overview_by_look_and_back(page):
    in_place = [[layer, head] for layer in range(3) for head in range(4)]
    assert page.order() == in_place
    page.tab.select_option("#order", "look")
    assert page.order() == sorted(in_place, key=lambda at: -share(*at, (2, 3), (7, 8)))
    page.tab.locator(".chip").nth(6).click()
    assert page.order() == sorted(in_place, key=lambda at: -share(*at, (6,), (7, 8)))
    assert f"{share(*page.order()[0], (6,), (7, 8)):.2f}" in page.text("#grid button:first-child")
    page.tab.keyboard.press("Escape")  # nothing is looked at: nothing to order by
    assert page.order() == in_place
    assert page.tab.locator("#order option[value=look]").is_disabled()


def test_overview_by_breadth(page):
    page.tab.select_option("#order", "focus")
    rows = WEIGHTS[:, :, [2, 3]].mean(axis=2).astype(float)
    breadth = 2 ** -(rows * np.log2(np.maximum(rows, 1e-300))).sum(axis=-1)
    assert page.order() == sorted(page.order(), key=lambda at: breadth[tuple(at)])
    assert page.text("#grid button:first-child").endswith(f"{breadth.min():.1f}")
    page.tab.select_option("#order", "place")
    assert page.order()[5] == [1, 1]


# --- long texts, colours, notebooks ---------------------------------------------------------------


def test_512_tokens(opened):
    weights = random_weights(6, 12, 512)
    tokens = ["[CLS]", *(f"word{n % 200}" for n in range(510)), "[SEP]"]
    whole = viz.AttentionPage(tokens, weights, opening=viz.Opening(2, 3, (300,)))
    page = opened(whole)
    assert f"holds the {whole.kept} largest weights of each row" in page.text("#kept")
    places = np.random.default_rng(1).integers([6, 12, 512, 512], size=(2000, 4)).tolist()
    read = page.tab.evaluate("places => places.map(([l, h, i, j]) => look(l, h, [i], [j]))", places)
    exact = np.array([weights[tuple(place)] for place in places])
    weight, most = (np.array([found[name] for found in read]) for name in ("weight", "most"))
    listed = weight == most
    assert 0.02 < listed.mean() < 0.5
    assert (np.abs(weight - exact)[listed] <= np.sqrt(exact[listed]) / 65535 + 1e-6).all()
    assert (exact <= most + 1e-6)[~listed].all()

    assert page.text("#window") == "all 512 tokens"
    for _ in range(4):
        page.tab.click("#in")
    assert page.text("#window") == "32 of 512 tokens"
    top, left = page.tab.evaluate("[view.top, view.left]")
    assert top <= 300 < top + 32
    page.tab.hover("#map", position=_cell(page, 3, 4))
    assert page.text("#readout").startswith(
        f"{page.tab.evaluate(f'labelOf([{top + 3}])')} → {page.tab.evaluate(f'labelOf([{left + 4}])')} "
    )
    page.tab.locator("#map").focus()
    for _ in range(40):
        page.tab.keyboard.press("ArrowDown")
    assert page.tab.evaluate("view.top") <= 340 < page.tab.evaluate("view.top") + 32  # the window follows


def test_numbers_keep_to_their_column(opened):
    weights = np.full((1, 1, 60, 60), 1e-5, np.float32)
    weights[..., 0] = 1 - 59e-5
    page = opened(viz.AttentionPage(["a-rather-long-token"] * 60, weights))
    spans = page.tab.locator("#looks span")
    assert spans.nth(3).inner_text() == "< 0.001"
    fits = "span => span.scrollWidth <= span.clientWidth && span.offsetHeight <= span.parentNode.offsetHeight"
    assert all(spans.nth(n).evaluate(fits) for n in range(spans.count()))
    spans.nth(3).evaluate("span => { span.textContent = '0123456789'.repeat(3); }")
    assert not spans.nth(3).evaluate(fits)


@pytest.mark.parametrize(("scheme", "light"), [("light", True), ("dark", False)])
def test_light_and_dark(opened, scheme, light):
    page = opened(viz.AttentionPage(TOKENS, WEIGHTS), color_scheme=scheme)
    back, ink = page.tab.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        ".map(color => color.match(/\\d+/g).map(Number).reduce((a, b) => a + b) / 3)"
    )
    assert (back > ink) == light
    assert abs(back - ink) > 180
    lightness = page.tab.evaluate("ramp.map(([r, g, b]) => 0.299 * r + 0.587 * g + 0.114 * b)")
    assert (np.diff(lightness) * (-1 if light else 1) > -0.5).all()


def test_narrow_window(opened):
    page = opened(viz.AttentionPage(TOKENS, WEIGHTS), viewport={"width": 360, "height": 700})
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= 360


def test_notebook_frame(browser, tmp_path):
    path = tmp_path / "notebook.html"
    page = viz.AttentionPage(TOKENS, WEIGHTS, opening=OPENING)
    path.write_text(f"<meta charset='utf-8'><body>{page._repr_html_()}</body>", encoding="utf-8")
    opened = Opened(browser, path)
    frame = opened.tab.frame_locator("iframe")
    assert frame.locator("#question").inner_text().startswith("tokenization → didn ' ")
    frame.locator(".chip").nth(6).click()
    assert frame.locator("#from").inner_text() == "café looks to"
    assert [url for url in opened.requests if not url.startswith(("file://", "about:srcdoc"))] == []
    assert opened.trouble == []
    opened.tab.close()
