"""The script that checks the claims of the artefact judges right and wrong claims."""

import json
import pathlib
import subprocess
import sys

ARTIFACT = pathlib.Path(__file__).parents[2] / "packaging" / "artifact"
ROWS = {"runs": [{"policy": p, "stp": s} for p, s in [("linux", 2.0), ("hsf", 3.0), ("hsf", 2.2), ("hsf", 2.4)]]}


def claim(name, condition, find="{ list = 'runs', field = 'stp', where = { policy = 'hsf' }, over = { policy = 'linux' } }"):
    command = json.dumps([sys.executable, "-c", f"print({json.dumps(json.dumps(ROWS))})"])
    return f"[[claim]]\nname = '{name}'\nclaim = 'c'\ncommand = {command}\nminutes = 0\nfind = {find}\n{condition}\n"


def judge(folder, text, *names):
    file = folder / "claims.toml"
    file.write_text(text)
    run = [sys.executable, ARTIFACT / "check.py", file, *names]
    return subprocess.run(run, capture_output=True, text=True)


def test_right_and_wrong_claims_are_told_apart(tmp_path):
    right = claim("median", "expected = 1.2\ntolerance = 0.001") + claim("bound", "at_least = 1.1")
    assert (run := judge(tmp_path, right)).returncode == 0, run.stdout + run.stderr
    wrong = right + claim("wrong", "expected = 1.5\ntolerance = 0.1")
    run = judge(tmp_path, wrong)
    assert run.returncode == 1 and "FAILS  wrong" in run.stdout and "2 of 3 claims hold" in run.stdout
    assert judge(tmp_path, wrong, "bound").returncode == 0
    missing = claim("none", "at_least = 0", "{ list = 'runs', field = 'stp', where = { policy = 'x' } }")
    run = judge(tmp_path, missing)
    assert run.returncode == 1 and "no row has" in run.stdout


def test_a_claim_that_says_too_little_is_an_error(tmp_path):
    for text, why in [("", "no [[claim]]"), (claim("a", ""), "needs either"), ("[[claim]]\nname='a'", "lacks"), ("[", "check:")]:
        run = judge(tmp_path, text)
        assert run.returncode == 3 and why in run.stderr, run.stderr
    assert judge(tmp_path, claim("a", "at_least = 0"), "b").returncode == 3


def test_the_claims_that_are_shipped_can_be_read():
    sys.path.insert(0, str(ARTIFACT))
    import check

    claims = check.claims(ARTIFACT / "claims.toml")
    assert len(claims) >= 8 and all(c["command"][0] == "steer" for c in claims)
    assert sum(c["minutes"] for c in claims) <= 30
