"""What `steer stat` said of programs that create great numbers of threads: one that ran already, and one that it started."""
import json


def forks(text):
    attached, launched = (json.loads(line) for line in text.splitlines() if line.startswith("{"))
    distinct = next(int(line) for line in text.splitlines() if line.isdigit())
    # The one that is attached to had run for a moment before.
    assert 0 < attached["threads_born"] <= 300 and attached["records_lost"] == 0, attached
    assert launched["threads_born"] == 200 and launched["records_lost"] == 0, launched
    assert distinct == 201, distinct
