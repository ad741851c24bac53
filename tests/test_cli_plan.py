"""regard plan: it says what rg.plan says, of shapes and of files, and refuses in one line what it cannot."""

import json
import re
import sys

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from regard.cli.__main__ import main
from regard.cli._bias import LEAVES as BIASES
from regard.cli._shell import BENCH, CHECK, PLAN, in_shell


@pytest.fixture
def plan(capsys, monkeypatch, tmp_path):
    """Run the command in an empty directory; return exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["regard", "plan", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsys.readouterr()
        return exit_.value.code or 0, out, err

    return run


def like(*shape, dtype=np.float32):
    return np.broadcast_to(np.zeros((), dtype), shape)


def facts(plan, *arguments):
    code, out, err = plan(*arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def assert_says(found, made):
    assert found == json.loads(json.dumps(made.facts()))


CASES = [
    (["1,8,300,64"], [like(1, 8, 300, 64)] * 3, {}),
    (["(1, 8, 300, 64)"], [like(1, 8, 300, 64)] * 3, {}),
    (["[300, 64,]"], [like(300, 64)] * 3, {}),
    (["2,8,1,64", "2,2,400,64", "2,2,400,32"], [like(2, 8, 1, 64), like(2, 2, 400, 64), like(2, 2, 400, 32)], {}),
    (["2,8,1,64", "--key", "2,2,400,64"], [like(2, 8, 1, 64), like(2, 2, 400, 64), like(2, 2, 400, 64)], {}),
    (["5,64", "--value", "5,3"], [like(5, 64), like(5, 64), like(5, 3)], {}),
    (["5,64", "--dtype", "float64", "--scale", "0.5"], [like(5, 64, dtype=float)] * 3, {"scale": 0.5}),
    (["5,64", "--dtype", "bfloat16"], [like(5, 64, dtype=ml_dtypes.bfloat16)] * 3, {}),
    (["5,64", "--softcap", "50"], [like(5, 64)] * 3, {"softcap": 50}),
    (["0,64"], [like(0, 64)] * 3, {}),
    (
        ["1,2,700,64", "--mask", "Causal() & Window(left=256)"],
        [like(1, 2, 700, 64)] * 3,
        {"mask": rg.Causal() & rg.Window(left=256)},
    ),
    (
        ["2,10,64", "--key", "2,700,64", "--mask", "Causal()", "--q-offset", "end"],
        [like(2, 10, 64), like(2, 700, 64), like(2, 700, 64)],
        {"mask": rg.Causal(), "q_offset": "end"},
    ),
    (
        ["2,1,10,64", "--key", "2,1,700,64", "--mask", "Causal()", "--q-offset", "-3, 600"],
        [like(2, 1, 10, 64), like(2, 1, 700, 64), like(2, 1, 700, 64)],
        {"mask": rg.Causal(), "q_offset": [-3, 600]},
    ),
]


@pytest.mark.parametrize(("arguments", "arrays", "options"), CASES, ids=lambda value: str(value)[:40])
def test_says_what_the_library_says(plan, arguments, arrays, options):
    found = facts(plan, *arguments)
    assert_says(found, rg.plan(*arrays, **options))
    offset = options.get("q_offset", 0)
    assert found["q_offset"] == (690 if offset == "end" else offset)


def test_bias_and_sinks(plan):
    found = facts(plan, "1,8,30,64", "--bias", "30,30", "--sinks", "8")
    assert (found["bias"], found["sinks"]) == (True, True)
    assert (facts(plan, "1,8,30,64")["bias"], facts(plan, "1,8,30,64")["sinks"]) == (False, False)
    np.save("bias.npy", np.ones((30, 30), np.float64))  # a bias may have another dtype
    assert facts(plan, "1,8,30,64", "--bias", "bias.npy", "--dtype", "float32")["bias"] is True
    assert facts(plan, "1,8,30,64", "--bias", "bias.npy")["dtype"] == "float32"
    np.save("mask.npy", np.ones((30, 30), bool))
    assert "a bool array is a mask, pass --mask" in plan("1,8,30,64", "--bias", "mask.npy")[2]
    np.save("table.npy", np.ones((32, 8), np.float32))
    for text, bias in (
        ("Alibi(8)", rg.Alibi(8)),
        ("rg.Alibi([.5])", rg.Alibi([0.5])),
        ("RelativeBias([-1.5, 0, 2])", rg.RelativeBias([-1.5, 0, 2])),
        ("T5Bias('table.npy', bidirectional=True)", rg.T5Bias(np.ones((32, 8)), bidirectional=True)),
        ("Alibi(8) + DenseBias('bias.npy')", rg.Alibi(8) + rg.DenseBias(np.ones((30, 30)))),
    ):
        assert_says(facts(plan, "1,8,30,64", "--bias", text), rg.plan(*[like(1, 8, 30, 64)] * 3, bias=bias))
    assert "the bias has shape (30, 31)" in plan("1,8,30,64", "--bias", "30,31")[2]
    assert "sinks has shape (7,)" in plan("1,8,30,64", "--sinks", "7")[2]


def test_threads_and_target_are_for_this_plan_only(plan):
    before = rg.plan(*[like(5, 64)] * 3)
    found = facts(plan, "5,64", "--threads", "3", "--target", "scalar")
    assert (found["threads"], found["target"], found["why"]) == (3, "scalar", "asked for by config(target=...)")
    after = rg.plan(*[like(5, 64)] * 3)
    assert (after.threads, after.target) == (before.threads, before.target)


def test_table(plan):
    code, out, err = plan(
        "1,8,200,64", "--key", "1,2,4000,64", "--mask", "Causal() & Window(left=9)", "--q-offset", "end", "--threads", 2
    )
    assert (code, err) == (0, "")
    with rg.config(num_threads=2):
        made = rg.plan(
            like(1, 8, 200, 64), *[like(1, 2, 4000, 64)] * 2, mask=rg.Causal() & rg.Window(left=9), q_offset="end"
        )
    said, tiles = " ".join(out.split()), made.tiles
    assert all(f"{name} {text}" in said for name, text in made.told().items())
    assert "scores (1, 8, 200, 4000), 8 heads, 2 of key and value, D 64, Dv 64, float32" in said
    assert "mask Causal() & Window(left=9), query 0 at position 3800" in said
    assert f"{tiles.visited:,} of {tiles.visited + tiles.skipped:,} visited, {tiles.partial:,} of them partial" in said
    assert f"{tiles.skipped:,} skipped" in said
    taken = 2 * made.scratch_bytes + tiles.mask_bytes + tiles.chunk_bytes
    assert f"memory {taken:,} bytes at most besides inputs and output" in said
    assert "all scores would be 25,600,000 bytes" in said
    assert max(map(len, out.splitlines())) <= 100


def test_picture(plan):
    mask = rg.PerHead([rg.Causal(), rg.Window(left=1)])
    asked = ["2,9,64", "--mask", repr(mask), "--picture"]
    drawn = [str(mask.picture(9, 9, head=head, tile_keys=rg.plan(*[like(9, 64)] * 3).tile_keys)) for head in (0, 1)]
    assert drawn[0] != drawn[1]
    assert drawn[0] in plan(*asked)[1]
    assert drawn[1] in plan(*asked, "--head", 1)[1]
    assert facts(plan, *asked)["picture"] == drawn[0]
    assert "--head is 2, and the scores (2, 9, 9) have 2 heads, which count from 0" in plan(*asked, "--head", 2)[2]
    code, out, err = plan("4,8", "--head", 5, "--picture")
    assert (code, out) == (2, "")
    assert "--head is 5, and the scores (4, 4) have 1 head" in err


def test_picture_of_a_batch_entry(plan):
    lengths = rg.KeyLengths([3, 5])
    asked = ["2,1,9,64", "--mask", "KeyLengths([3, 5]) & Causal()", "--picture"]
    for batch in (0, 1):
        mask = lengths & rg.Causal()
        drawn = mask.picture(9, 9, batch=batch, tile_keys=rg.plan(*[like(2, 1, 9, 64)] * 3, mask=mask).tile_keys)
        assert str(drawn) in plan(*asked, "--batch", batch)[1]
        of_six = plan("3,2,1,9,64", *asked[1:], "--batch", 4 + batch)[1]  # entry (2, batch) of (3, 2)
        assert str(drawn).replace(f"batch entry {batch}", f"batch entry 2, {batch}") in of_six
        apart = plan("2,1,9,64", "--q-offset", "1,2", "--mask", "Causal()", "--picture", "--batch", batch)[1]
        assert f"the first at position {1 + batch}" in apart
    assert (
        plan(*asked, "--batch", 2)[2]
        == "regard: --batch is 2, and the scores (2, 1, 9, 9) have 2 batch entries, which count from 0\n"
    )
    assert plan("9,64", "--picture", "--batch", 1)[0] == 2


@pytest.mark.parametrize(
    "mask", ["Causal()", "KeyLengths(9)", "KeyLengths([9])", "KeyLengths([3, 9])", "KeyLengths([[3], [1], [9]])"]
)
def test_a_picture_names_the_batch_entry_of_the_scores(plan, mask):
    """Whatever axes of its own the mask has."""
    out = plan("3,2,4,9,64", "--mask", mask, "--picture", "--batch", 5, "--head", 3)[1]
    assert f"{mask}: 9 queries down, 9 keys across, batch entry 2, 1, head 3\n" in out


def test_a_picture_of_a_table_with_heads(plan, tmp_path):
    table = np.random.default_rng(0).random((1, 3, 9, 9)) < 0.5
    np.save(tmp_path / "mask.npy", table)
    out = plan("2,3,9,64", "--mask", f"Dense('{tmp_path / 'mask.npy'}')", "--picture", "--batch", 1, "--head", 2)[1]
    assert "batch entry 1, head 2\n" in out
    assert "\n".join(" ".join("■" if kept else "·" for kept in row) for row in table[0, 2]) in out


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_files(plan, dtype):
    arrays = [np.ones(shape, dtype) for shape in ((1, 4, 20, 16), (1, 2, 30, 16), (1, 2, 30, 8))]
    for name, array in zip("qkv", arrays, strict=True):
        np.save(f"{name}.npy", np.asfortranarray(array) if name == "k" else array)
    assert_says(facts(plan, "q.npy", "k.npy", "v.npy"), rg.plan(*arrays))
    assert_says(facts(plan, "q.npy", "--key", "k.npy", "--value", "1,2,30,8"), rg.plan(*arrays))
    assert_says(facts(plan, "q.npy", "--dtype", dtype), rg.plan(*[arrays[0]] * 3))


def test_files_of_bfloat16_need_a_word(plan):
    array = np.ones((1, 4, 20, 16), ml_dtypes.bfloat16)
    np.save("q.npy", array)
    code, out, err = plan("q.npy")
    assert (code, out) == (2, "")
    assert err == (
        "regard: q.npy holds elements of 2 bytes and no type, as numpy.save writes bfloat16: if they are, say "
        "--dtype bfloat16\n"
    )
    assert "--dtype bfloat16" in plan("q.npy", "--dtype", "float16")[2]
    assert_says(facts(plan, "q.npy", "--dtype", "bfloat16"), rg.plan(array, array, array))


def test_mask_from_a_file(plan):
    table = np.tri(20, dtype=bool)
    np.save("mask.npy", table)
    assert_says(facts(plan, "2,20,64", "--mask", "Dense('mask.npy')"), rg.plan(*[like(2, 20, 64)] * 3, mask=table))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((2, 3), ">f4"), "byte order is not this machine's"),
        (np.ones((2, 3), np.int64), "query has the integer dtype int64"),
        (np.ones((2, 3), complex), "query is complex"),
        (np.ones((2, 3), "S4"), "query is not an array of numbers"),
        (np.ones((2, 3), "V1"), "query is not an array of numbers"),
        (np.ones((2, 3), object), "holds Python objects"),
        (np.ones(3, np.float32), "it needs at least two axes"),
    ],
    ids=str,
)
def test_files_that_attention_does_not_take(plan, array, message):
    np.save("q.npy", array, allow_pickle=True)
    code, out, err = plan("q.npy")
    assert (code, out) == (2, "")
    assert re.fullmatch(f"regard: .*{re.escape(message)}.*\n", err)


def test_a_file_of_more_axes_than_old_numpy_has(plan):
    with open("q.npy", "wb") as file:
        head = {"descr": "<f4", "fortran_order": False, "shape": (1,) * 34}
        np.lib.format.write_array_header_1_0(file, head)
        file.write(bytes(4))
    assert plan("q.npy")[::2] == (2, "regard: q.npy holds an array of 34 axes; arrays have up to 32: reshape it\n")


# --- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["1,8,x,64"], "query is '1,8,x,64'; it must be a shape such as 1,8,2048,64, or the name of an .npy file"),
        (["\u0663,4"], "it must be a shape"),
        (["q.npy"], "there is no file q.npy"),
        (["."], "query is '.'; it must be a shape"),
        (["./"], "is a directory"),
        (["/dev/zero"], "/dev/zero is a device"),
        (["1,8,-4,64"], "which no array has"),
        (["1,1,4611686018427387904,8"], "which no array has"),
        (["4611686018427387904,8,1,1"], "which no array has"),
        (["9" * 30 + ",4"], "it must be a shape"),
        (["1," * 40 + "4,4"], "up to 32 sizes"),
        (["1099511627776,1048576,1,1"], "up to 2**31 heads of all batch entries"),
        (["1,8,100000000,64"], "a plan counts each"),
        (["2147483648,1,8"], "a plan, which looks at each, takes up to 16,777,216"),
        (["64"], "it needs at least two axes"),
        (["1,8,20,64", "1,8,20,32"], "query has head size 64 and key has 32"),
        (["1,8,20,64", "1,3,20,64"], "grouped heads need a multiple"),
        (["1,8,20,64", "1,8,20,64", "--key", "1,8,20,64"], "key was given twice: 1,8,20,64 and --key 1,8,20,64"),
        (["4,4", "4,4", "4,4", "4,4"], "4 arrays were given; give query"),
        (
            ["1,8,20,64", "--key", "1,8,40,64", "--mask", "Causal()"],
            "pass --q-offset start (query i at position i), --q-offset end",
        ),
        (["1,8,20,64", "--key", "1,8,40,64", "--bias", "Alibi(8)"], ", --q-offset end (query i at position 20 + i"),
        (
            ["2,1,20,64", "--key", "2,1,40,64", "--mask", "Causal() & KeyLengths([9, 40])", "--q-offset", "end"],
            "pass --q-offset with length - queries of each, such as 3,5",
        ),
        (["4,4", "--q-offset", "middle"], "--q-offset is 'middle'; it must be an int"),
        (["4,4", "--q-offset", "9" * 19], "--q-offset is 9999999999999999999"),
        (["4,4", "--q-offset", "9" * 5000], "--q-offset is '999"),
        (["2,4,4,4", "--q-offset", "1,2,3"], "regard: --q-offset has shape (3,)"),
        (["4,4", "--scale", "nan"], "regard: --scale is nan"),
        (["4,4", "--scale", "1e400"], "regard: --scale is inf"),
        (["4,0"], "has no value: pass --scale\n"),
        (["4,4", "--softcap", "0"], "regard: --softcap is 0.0"),
        (["4,4", "--softcap", "-1"], "regard: --softcap is -1.0"),
        (["4,4", "--dtype", "float8"], "--dtype is 'float8'; attention computes float32, float64"),
        (["4,4", "--threads", "0"], "regard: --threads is 0"),
        (["4,4", "--threads", "100000"], "regard: --threads is 100000"),
        (["4,4", "--target", "avx1024"], "regard: --target is 'avx1024'"),
        (["4,4", "--bias", "4,5"], "the bias has shape (4, 5)"),
        (["1,8,20,64", "--sinks", "4"], "regard: --sinks has shape (4,)"),
        (["4,4", "--bias", "Alibi"], "--bias, column 1: Alibi needs parentheses: Alibi(...)"),
        (["1,8,4,4", "--bias", "Alibi(4)"], "holds 4 heads and the scores have 8"),
        (["4,4", "--bias", "__import__('os')"], "--bias, column 1: there is no bias __import__"),
        (["4,4", "--mask", "exec('x')"], "--mask, column 1: there is no mask exec"),
        (["4,4", "--mask", "Dense([[True]]) & x\x1b[2J"], "--mask, column "),
        (["4,4", "--mask", "PerHead([Causal()] )", "--picture", "--head", "-1"], "head is -1"),
        (
            ["2,4,9,64", "--batch", "1"],
            "regard: --batch 1 says what a picture shows: add --picture, or leave --batch out",
        ),
        (["4,9,64", "--head", "0", "--json"], "--head 0 says what a picture shows: add --picture, or leave --head out"),
        (["2,20,64", "--mask", "Dense([[True, False]])"], "the mask has shape (1, 2)"),
    ],
    ids=lambda value: ascii(" ".join(value)[:40]) if isinstance(value, list) else "",
)
def test_refused_in_one_line(plan, arguments, message):
    code, out, err = plan(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("regard: ")
    assert message in err
    assert not re.search(r"\b(mask|bias|q_offset|scale|softcap|sinks|num_threads|target|dtype)=", err)
    assert err.count("\n") == 1
    assert len(err) < 700
    assert "\x1b" not in err


@pytest.mark.parametrize(("d", "keys"), [(64, 960), (512, 480)])
def test_a_count_without_end_is_not_begun_and_counts_with_the_kernels_tiles(plan, monkeypatch, d, keys):
    monkeypatch.setattr("regard.cli._plan._MAX_TILES", 10)
    assert plan(f"96,{d}", "--key", f"{keys},{d}")[0] == 0
    assert plan(f"8,8,{d}", "--key", f"1,{keys},{d}")[0] == 0  # eight heads in one block of rows
    code, out, err = plan(f"96,{d}", "--key", f"{keys + 1},{d}")
    assert (code, out) == (2, "")
    assert f"the scores (96, {keys + 1}) make 1.1e+01 tiles of 96 queries x {keys // 10} keys, and a plan" in err


@pytest.mark.parametrize("arguments", [[], ["4,4", "--scale", "x"], ["4,4", "--nonsense"], ["-1,8,4,4"]])
def test_usage_errors(plan, arguments):
    code, out, err = plan(*arguments)
    assert (code, out) == (2, "")
    assert "Usage: regard plan" in err


def test_a_file_that_contradicts_the_dtype(plan):
    np.save("q.npy", np.ones((2, 3), np.float16))
    assert "q.npy holds float16, and --dtype says float32: leave --dtype out" in plan("q.npy", "--dtype", "float32")[2]


def test_help_is_enough(plan, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = plan("--help")
    said = " ".join(re.sub("[│\n]", " ", out).split())
    assert code == 0
    for word in (*rg.masks.__dict__, *BIASES, "bfloat16", "start", "end", "regard plan q.npy k.npy v.npy"):
        if word[0] != "_" and word not in ("Mask", "from_function") and "_" not in word[:1]:
            assert word in said
    assert "(batch, heads, queries, head size)" in said


@pytest.mark.parametrize(
    ("message", "names", "said"),
    [
        ("scale is 1: pass scale=-1, or scale=", PLAN, "--scale is 1: pass --scale -1, or --scale"),
        ('pass q_offset="end"; q_offset counts', PLAN, "pass --q-offset end; --q-offset counts"),
        ("write bias=(Alibi(8)) or mask='x.npy'", PLAN, "write --bias (Alibi(8)) or --mask 'x.npy'"),
        ("num_kv_heads= is a rescale=2", PLAN, "num_kv_heads= is a rescale=2"),
        ("budget_s is -1; see strict=True, expected=, layout='bhsd'", CHECK,
         "--budget is -1; see --strict, --expected, --layout bhsd"),
        ("threads is 0 and threads is 1", BENCH, "--threads is 0 and threads is 1"),
    ],
)  # fmt: skip
def test_messages_in_a_shells_words(message, names, said):
    assert in_shell(message, names) == said
