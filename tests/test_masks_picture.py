"""Masks spelled out and drawn: text is exact, SVG is read back, and tiles are counted again from all pairs."""

import math
import xml.etree.ElementTree as ET
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from masks_random import cases, offsets, oracle
from regard._types import Geometry, Offsets
from regard.masks import _evaluate, _picture, _svg
from regard.masks._grid import EMPTY, FULL, PARTIAL
from regard.masks._picture import draw

one_head = cases(leads=[()])


def say(error, *parts):
    missing = [part for part in parts if part not in str(error.value)]
    assert not missing, f"{missing} not in {str(error.value)!r}"


# materialize


@settings(max_examples=100)
@given(cases(), st.sampled_from([8, 20, 1 << 20]))
def test_materialize_spells_out_every_pair(case, most):
    mask, g = case
    offset = g.q_offset.array() if isinstance(g.q_offset, Offsets) else g.q_offset
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_evaluate, "MAX_CHUNK_PAIRS", most)
        table = mask.materialize(g.queries, g.keys, q_offset=offset, lead=g.lead, heads=g.heads)
    assert table.dtype == np.bool_
    want = oracle(mask, g)
    np.testing.assert_array_equal(table, want if g.lead or g.heads > 1 else want[0])


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ({}, (2, 3)),
        ({"heads": 1}, (2, 3)),
        ({"heads": 4}, (4, 2, 3)),
        ({"lead": (5,)}, (5, 1, 2, 3)),
        ({"lead": (1,), "heads": 4}, (1, 4, 2, 3)),
        ({"lead": [5, 0], "q_offset": [[7], *[[1]] * 4]}, (5, 0, 1, 2, 3)),
    ],
)
def test_materialize_has_all_axes_unless_there_is_but_one_head(sizes, shape):
    assert rg.Causal().materialize(2, 3, **sizes).shape == shape


def test_materialize_checks_what_the_mask_holds():
    with pytest.raises(rg.MaskError) as error:
        (rg.Causal() & rg.KeyLengths([1, 2])).materialize(2, 3)
    say(error, "shape (2,)", "leading axes ()")


@pytest.mark.parametrize(
    ("use", "name"),
    [(use, name) for use in ("materialize", "picture") for name in ("queries", "keys")]
    + [("materialize", "heads"), ("materialize", "lead"), ("picture", "block_rows"), ("picture", "tile_keys")]
    + [("picture", "head"), ("picture", "batch")],
)
@pytest.mark.parametrize("value", [-1, 2.0, True, "3"])
def test_sizes_are_natural_numbers(use, name, value):
    sizes = {"queries": 2, "keys": 3, name: (3, value) if name == "lead" else value}
    with pytest.raises(rg.ShapeError) as error:
        getattr(rg.Causal(), use)(**sizes)
    say(error, f"{name} is {value!r}", f"an integer, {int(name in ('block_rows', 'tile_keys'))} or more")


def test_a_tile_is_not_empty():
    with pytest.raises(rg.ShapeError, match="tile_keys is 0; it must be an integer, 1 or more"):
        rg.Causal().picture(2, 3, tile_keys=0)


def materialize(q_offset):
    return rg.Causal().materialize(2, 3, q_offset=q_offset, lead=(2,))


def attend(q_offset):
    x = np.zeros((2, 1, 3, 4), np.float32)
    return rg.attention(x[:, :, :2], x, x, mask=rg.Causal(), q_offset=q_offset)


@pytest.mark.parametrize(("call", "way"), [(materialize, "write keys - queries"), (attend, '"start" (0) or "end"')])
@pytest.mark.parametrize(
    ("q_offset", "fact"),
    [
        (1.0, "q_offset is 1.0; it must be an int up to 2**61"),
        (True, "q_offset is True; it"),
        (np.True_, f"q_offset is {np.True_!r}; it"),
        (np.array(True), "q_offset is array(True); it"),
        ("middle", "q_offset is 'middle'; it"),
        (2**61 + 1, f"q_offset is {2**61 + 1}; it"),
        (-(2**61) - 1, f"q_offset is {-(2**61) - 1}; it"),
        (np.int64(2**62), f"q_offset is {np.int64(2**62)!r}; it"),
        (2**70, f"q_offset is {2**70}; it"),
        ([2.0, 3.0], "q_offset is [2.0, 3.0]; it"),
    ],
)
def test_offsets_are_positions(call, way, q_offset, fact):
    with pytest.raises(rg.AlignmentError) as error:
        call(q_offset)
    say(error, fact, "ints per batch entry", way)


@pytest.mark.parametrize("call", [materialize, attend])
@pytest.mark.parametrize(
    ("q_offset", "fact"),
    [
        ([1, 2, 3], "q_offset has shape (3,) and the leading (batch) axes are (2,)"),
        ([[1, 2]], "q_offset has shape (1, 2)"),
        ([0, 2**61 + 1], f"q_offset reaches from 0 to {2**61 + 1}; positions are at most 2**61"),
        (np.uint64([2**63, 1]), f"reaches from 1 to {2**63}"),
        ([[1], [2, 3]], "q_offset is not an array of numbers"),
        (np.ma.masked_array([1, 2]), "q_offset is a NumPy masked array"),
    ],
)
def test_offsets_per_batch_entry(call, q_offset, fact):
    with pytest.raises(rg.AlignmentError) as error:
        call(q_offset)
    say(error, fact)


@pytest.mark.parametrize("q_offset", [None, "end", "start"])
def test_a_mask_alone_takes_numbers_only(q_offset):
    with pytest.raises(rg.AlignmentError) as error:
        materialize(q_offset)
    say(error, f"q_offset is {q_offset!r}", "write keys - queries")


def test_farthest_offsets_are_taken():
    for at, kept in ((2**61, True), (-(2**61), False)):
        for q_offset in (at, np.int64(at), np.array(at), [at, at], np.array([at])):
            assert (materialize(q_offset) == kept).all()
            assert attend(q_offset).shape == (2, 1, 2, 4)


# text


@pytest.mark.parametrize(
    ("mask", "sizes", "text"),
    [
        (
            rg.Causal() & rg.Window(left=1) | rg.Global(1),
            {"queries": 4, "keys": 5, "block_rows": 2, "tile_keys": 2},
            "Causal() & Window(left=1) | Global(1): 4 queries down, 5 keys across\n"
            "■ ■ ■ ■ ■\n"
            "■ ■ · · ·\n"
            "■ ■ ■ · ·\n"
            "■ · ■ ■ ·\n"
            "■ kept  · not kept\n"
            "13 of 20 pairs kept; tiles of 2 x 2: 1 full, 4 partial, 1 empty",
        ),
        (
            rg.Chunked(2),
            {"queries": 1, "keys": 4, "q_offset": 2},
            "Chunked(2): 1 query down, the first at position 2, 4 keys across\n"
            "· · ■ ■\n"
            "■ kept  · not kept\n"
            "2 of 4 pairs kept; tiles of 96 x 96: 0 full, 1 partial, 0 empty",
        ),
        (
            rg.Causal(),
            {"queries": 100, "keys": 65, "block_rows": 20, "tile_keys": 20, "q_offset": -1000},
            "Causal(): 100 queries down, the first at position -1,000, 65 keys across\n"
            "····\n····\n····\n····\n····\n"
            "█ full  ▒ partial  · empty, 1 tile to a cell\n"
            "0 of 6,500 pairs kept; tiles of 20 x 20: 0 full, 0 partial, 20 empty",
        ),
        (
            rg.Causal() & rg.Window(left=50),
            {"queries": 100, "keys": 100, "block_rows": 20, "tile_keys": 20},
            "Causal() & Window(left=50): 100 queries down, 100 keys across\n"
            "▒····\n█▒···\n▒█▒··\n▒▒█▒·\n·▒▒█▒\n"
            "█ full  ▒ partial  · empty, 1 tile to a cell\n"
            "3,825 of 10,000 pairs kept; tiles of 20 x 20: 4 full, 10 partial, 11 empty",
        ),
        (
            rg.Empty(),
            {"queries": 2, "keys": 0},
            "Empty(): 2 queries down, 0 keys across\n\n\n■ kept  · not kept\n"
            "0 of 0 pairs kept; tiles of 96 x 96: 0 full, 0 partial, 0 empty",
        ),
        (
            rg.Full(),
            {"queries": 0, "keys": 1},
            "Full(): 0 queries down, 1 key across\n■ kept  · not kept\n"
            "0 of 0 pairs kept; tiles of 96 x 96: 0 full, 0 partial, 0 empty",
        ),
    ],
)
def test_text(mask, sizes, text):
    picture = mask.picture(**sizes)
    assert str(picture) == text
    assert repr(picture) == text


def test_many_tiles_are_summarised():
    picture = rg.Causal().picture(131072, 131072, block_rows=64)
    lines = str(picture).splitlines()
    assert lines[1] == "▒" + "·" * 62
    assert lines[32] == "█" * 30 + "▒▒" + "·" * 31  # queries 63488 ... 65535, keys in steps of 2112
    assert lines[64] == "█" * 61 + "▒▒"
    assert lines[65:] == [
        "█ full  ▒ partial  · empty, 32 x 22 tiles to a cell",
        "8,590,000,128 of 17,179,869,184 pairs kept; tiles of 64 x 96: 1,396,736 full, 2,731 partial, 1,398,101 empty",
    ]


def test_a_picture_is_frozen():
    with pytest.raises(FrozenInstanceError):
        rg.Causal().picture(2, 2).full = 7


# tiles


def dense_count(table, tile):
    """Empty, partial and full tiles of a bool table, and the table of their verdicts."""
    rows, columns = (range(0, size, step) for size, step in zip(table.shape, tile, strict=True))
    tiles = [[table[i : i + tile[0], j : j + tile[1]] for j in columns] for i in rows]
    judged = [[FULL if t.all() else PARTIAL if t.any() else EMPTY for t in row] for row in tiles]
    return np.array(judged, int).reshape(len(rows), len(columns))


@settings(max_examples=300)
@given(one_head, st.tuples(st.integers(1, 8), st.integers(1, 8)), st.sampled_from([1, 2, 3, 5, 7, 64]))
def test_tiles_are_those_of_the_dense_table(case, tile, most):
    mask, geometry = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_picture, "MAX_CELLS", most)
        picture = draw(mask, geometry, 0, tile)
        table = oracle(mask, geometry)[0]
        judged = dense_count(table, tile)
        assert [picture.empty, picture.partial, picture.full] == [np.sum(judged == v) for v in (EMPTY, PARTIAL, FULL)]
        assert picture.kept.sum() == table.sum()
        assert picture.pairs == (max(table.shape) <= most)
        assert max(picture.kept.shape) <= most
        np.testing.assert_array_equal(picture.verdicts, dense_count(table, picture.cell))
        assert_draws(picture, table)


TWO_OF_THREE = rg.Dense(np.arange(2 * 4 * 6).reshape(2, 1, 4, 6) % 5 > 1)


@pytest.mark.parametrize("most", [2, 64])
@pytest.mark.parametrize(
    ("mask", "lead"),
    [
        (rg.KeyLengths([2, 5, 0]), (3,)),
        (rg.Causal() & rg.KeyPadding(np.arange(12).reshape(2, 6) % 3 > 0), (2,)),
        (rg.KeyLengths([[2], [3]]) & rg.Documents([[0, 1, 1, 2], [0, 0, 0, 1]], [0, 0, 1, 1, 2, 2]), (2, 2)),
        (TWO_OF_THREE | rg.Causal(), (2,)),
        (rg.Blocks(np.eye(2, dtype=bool)[:, None, None], 4) & ~rg.KeyLengths(1), (2,)),
        (rg.PerHead([rg.KeyLengths([2, 5]), rg.Causal()]), (2,)),
        (rg.from_function(lambda b, h, p, j: j <= p + b) & rg.KeyLengths([6, 6]), (2,)),
    ],
    ids=lambda value: None if isinstance(value, tuple) else repr(value)[:30],
)
def test_each_batch_entry_can_be_drawn(monkeypatch, mask, lead, most):
    monkeypatch.setattr(_picture, "MAX_CELLS", most)
    heads, offsets = mask.heads or 1, np.arange(math.prod(lead)).reshape(lead)
    tables = mask.materialize(4, 6, lead=lead, q_offset=offsets)
    for batch, entry in enumerate(np.ndindex(lead)):
        for head in range(heads):
            picture = mask.picture(4, 6, q_offset=offsets, batch=batch, head=head, block_rows=2, tile_keys=3)
            assert_draws(picture, tables[entry][head])
            assert f"batch entry {', '.join(map(str, entry))}" in picture.title()
    with pytest.raises(rg.ShapeError, match=f"there is no entry {math.prod(lead)} in .* made for {math.prod(lead)}"):
        mask.picture(4, 6, batch=math.prod(lead))


def test_a_mask_for_any_batch_has_every_entry():
    for mask in (rg.Causal(), rg.KeyLengths([4]), rg.Dense(np.tri(4, 6, dtype=bool)[None, None])):
        assert (mask.picture(4, 6, batch=9).kept == mask.picture(4, 6).kept).all()
    later = rg.from_function(lambda b, h, p, j: j <= p + b)
    assert_draws(later.picture(4, 6, batch=2), np.tri(4, 6, 2, dtype=bool))
    with pytest.raises(rg.MaskError, match=r"leading axes \(2,\) and \(3,\), which do not broadcast"):
        (rg.KeyLengths([1, 2]) & rg.KeyLengths([1, 2, 3])).picture(4, 6)


# SVG

SVG = "{http://www.w3.org/2000/svg}"


def boxes(path):
    """The rectangles of a path that _boxes made."""
    for box in path.get("d").split("M")[1:]:
        left, rest = box.removesuffix("z").split(" ")
        top, rest = rest.split("H", 1)
        right, rest = rest.split("V")
        bottom, back = rest.split("H")
        assert back == left
        yield tuple(map(float, (left, top, right, bottom)))


def shades_read_back(picture):
    """Which of empty, partial and full covers the middle of each cell; exactly one does."""
    root = ET.fromstring(picture.svg)
    x, y = _svg._edges(picture)
    middle_x, middle_y = (x[1:] + x[:-1]) / 2, (y[1:] + y[:-1])[:, None] / 2
    covered = np.zeros((3, *picture.kept.shape), int)
    for name, shade in (("empty", EMPTY), ("partial", PARTIAL), ("full", FULL)):
        for path in root.iter(f"{SVG}path"):
            if path.get("class") == name:
                for left, top, right, bottom in boxes(path):
                    covered[shade] += (left < middle_x) & (middle_x < right) & (top < middle_y) & (middle_y < bottom)
    assert (covered.sum(axis=0) == 1).all()
    return covered.argmax(axis=0)


def assert_draws(picture, table):
    """The SVG shades cells as the table has it; a pair that is not kept, by its tile."""
    want = dense_count(table, picture.cell)
    if picture.pairs:
        rows, keys = picture.tile
        tiles = dense_count(table, picture.tile).repeat(rows, axis=0).repeat(keys, axis=1)
        skipped = tiles[: table.shape[0], : table.shape[1]] == EMPTY
        want = np.where(table, FULL, np.where(skipped, EMPTY, PARTIAL))
    np.testing.assert_array_equal(shades_read_back(picture), want)


def test_the_judge_says_no():
    picture = rg.Causal().picture(3, 3)
    assert_draws(picture, np.tri(3, dtype=bool))
    with pytest.raises(AssertionError):
        assert_draws(picture, np.tri(3, k=1, dtype=bool))


PICTURES = [
    (rg.Causal() & rg.from_function(lambda b, h, p, j: j != 2), {"queries": 3, "keys": 4}),
    (rg.Causal() & rg.Documents(np.arange(900) // 70), {"queries": 900, "keys": 900}),
    (rg.Blocks(np.eye(9, dtype=bool), 100), {"queries": 900, "keys": 900, "tile_keys": 1, "block_rows": 1}),
    (rg.Causal(), {"queries": 1, "keys": 4096, "q_offset": 4095}),
    (rg.Causal(), {"queries": 0, "keys": 0}),
    (rg.Causal(), {"queries": 100, "keys": 0}),
    (rg.Dense(np.ones((2, 3), bool)), {"queries": 2, "keys": 3}),
]


@pytest.mark.parametrize(("mask", "sizes"), PICTURES)
def test_svg_is_well_formed_and_needs_nothing(mask, sizes):
    picture = mask.picture(**sizes)
    root = ET.fromstring(picture.svg)
    assert root.tag == f"{SVG}svg"
    assert root.find(f"{SVG}title").text == picture.title()
    assert picture.tally() in root.find(f"{SVG}desc").text
    assert {e.tag.removeprefix(SVG) for e in root.iter()} <= {"svg", "title", "desc", "style", "rect", "path", "text"}
    assert not any("href" in name or name == "id" for e in root.iter() for name in e.attrib)
    assert "url(" not in picture.svg
    assert "@import" not in picture.svg
    rules = root.find(f"{SVG}style").text
    assert "prefers-color-scheme: dark" in rules
    assert all(line.startswith((".regard-picture ", "@media", "}")) for line in rules.strip().splitlines())
    assert picture._repr_svg_() == picture.svg
    numbers = [*root.get("viewBox").split(), root.get("width"), root.get("height")]
    assert all(math.isfinite(float(number)) for number in numbers)


def test_svg_shows_the_mask_the_axes_and_the_counts():
    def texts(picture):
        return [element.text for element in ET.fromstring(picture.svg).iter(f"{SVG}text")]

    shown = texts((rg.Causal() & rg.Window(left=2)).picture(3, 5, q_offset=2, tile_keys=2))
    assert shown[:3] == ["Causal() & Window(left=2)", "keys →", "queries ↓"]
    assert shown[3:11] == [*"01234", *"012"]
    assert "3 queries down, the first at position 2, 5 keys across" in shown
    assert "9 of 15 pairs kept; tiles of 96 x 2: 0 full, 3 partial, 0 empty" in shown
    shown = texts(rg.Causal().picture(1024, 1024, block_rows=64))
    assert shown[3:19] == [str(128 * k) for k in range(8)] * 2
    assert {"75 full", "21 partial", "80 empty", "1,024 queries down, 1,024 keys across"} <= set(shown)
    assert texts((rg.Causal() | rg.Documents(np.arange(60))).picture(60, 60))[0].endswith("…")


def test_svg_stays_small():
    ids = np.random.default_rng(0).permutation(4096) // 2
    assert len((rg.Causal() & rg.Documents(ids)).picture(4096, 4096).svg) < 200_000


def test_offsets_helper_broadcasts():
    for seed in range(20):
        shape = offsets(np.random.default_rng(seed), (2, 3)).array().shape
        assert np.broadcast_shapes(shape, (2, 3)) == (2, 3)
    assert Offsets((2, 1), (4, 5)).array().tolist() == [[4], [5]]
    assert hash(Geometry((2,), 1, 1, 1, Offsets((2,), (4, 5)))) == hash(Geometry((2,), 1, 1, 1, Offsets((2,), (4, 5))))
