"""What results can be given to, charts, profiles, models, and the types of the package."""

import importlib.metadata
import json
import subprocess
import sys

import pytest

import countersteer as cs

MACHINE, WORKLOAD = "quickia-2b-2s", "unequal-cores"


@pytest.fixture(scope="module")
def result():
    return cs.compare(MACHINE, WORKLOAD, ["linux", "aarr"], seeds=2, rounds=1)


TAKERS = {
    "polars": lambda lib, table: lib.DataFrame(table).shape,
    "pyarrow": lambda lib, table: lib.table(table).shape,
    "duckdb": lambda lib, scores: lib.sql("from scores").shape,
    "pandas": lambda lib, table: lib.DataFrame.from_arrow(table).shape,
}


@pytest.mark.parametrize("name", TAKERS)
def test_libraries_take_tables_as_they_are(name, result):
    lib = pytest.importorskip(name, reason=f"{name} is not installed")
    if name == "pandas" and not hasattr(lib.DataFrame, "from_arrow"):
        pytest.skip("this pandas is older than 3, which takes Arrow as it is")
    assert TAKERS[name](lib, result.scores) == (4, len(result.scores.columns))


@pytest.mark.parametrize("name", cs.Comparison.charts())
def test_charts_hold_the_result_s_figures(name, result):
    altair = pytest.importorskip("altair", reason="altair is not installed")
    chart = result.chart(name)
    assert isinstance(chart, altair.TopLevelMixin)
    spec = chart.to_dict()  # checked against the schema
    (rows,) = spec.get("datasets", {}).values() or [spec["data"]["values"]]
    assert {row["policy"] for row in rows} == {"linux", "aarr"}
    if name == "scores":
        runs = [run for run in json.loads(result.to_json())["runs"] if run["policy"] == "aarr"]
        (row,) = [row for row in rows if row["panel"] == "STP" and row["policy"] == "aarr"]
        assert [row["least"], row["most"]] == sorted(run["stp"] for run in runs)


def test_an_unknown_chart_is_named(result):
    with pytest.raises(cs.CountersteerError, match="no chart `pie`: scores, slowdowns"):
        result.chart_json("pie")


def test_a_program_is_recorded(tmp_path):
    try:
        profile = cs.profile(["/bin/true"], tmp_path / "true.json", name="nothing")
    except cs.CountersteerError as error:
        if "takes plugins" not in str(error):
            raise
        pytest.skip(str(error))
    assert profile.name == cs.Profile.load(tmp_path / "true.json").name == "nothing"
    assert profile.data["instructions"] > 1000
    with pytest.raises(cs.CountersteerError, match="no-such-program"):
        cs.profile(["./no-such-program"], tmp_path / "none.json")


def test_models_are_listed_and_shown():
    shipped = cs.models.known()
    assert {model["target"] for model in shipped} == {"sf", "ef"}
    assert cs.models.load(shipped[-1]["path"])["target"] in ("sf", "ef")
    with pytest.raises(cs.CountersteerError, match="no machine `pdp-11`"):
        cs.models.eval("pdp-11")


def test_the_types_hold():
    pytest.importorskip("mypy", reason="mypy is not installed")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-incremental", "--ignore-missing-imports", "--disallow-untyped-defs", "-p", "countersteer"],
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert checked.returncode == 0, checked.stdout
    stubs = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "countersteer._countersteer", "--ignore-missing-stub", "--ignore-disjoint-bases"], capture_output=True, text=True, cwd="/"
    )
    assert stubs.returncode == 0, stubs.stdout


def test_the_first_example_of_the_readme_runs(capsys):
    pytest.importorskip("polars", reason="polars is not installed")
    described = importlib.metadata.metadata("countersteer")
    text = described["Description"] or described.get_payload()
    exec(text.split("```python\n")[1].split("```")[0], {})
    assert "joint" in capsys.readouterr().out
