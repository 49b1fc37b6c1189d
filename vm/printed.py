"""What cases print, taken apart: parts that begin with `case NAME`, with summaries and lines `key: value` in them."""
import json
import sys

text = sys.stdin.read()
cases = dict(case.split("\n", 1) for case in text.split("case ")[1:])


def summaries(case):
    body = cases[case]
    decoder, found, at = json.JSONDecoder(), [], body.find("{\n")
    while at >= 0:
        value, length = decoder.raw_decode(body[at:])
        found.append(value)
        at = body.find("{\n", at + length)
    return found


def is_placed(run, observations=21):
    """Tells if the threads of a run were where the policy wanted them, in so many observations or more. One may be of a thread on its way."""
    wrong, observed = run["misplaced"]
    return observed >= observations and wrong <= max(1, 0.01 * observed)


def lines(case):
    return dict(line.split(": ", 1) for line in cases[case].splitlines() if ": " in line and line[0] not in " [{")
