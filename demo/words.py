"""Counts words and what follows them: dictionaries of strings, as many interpreted programs do."""

import sys

follows = {}
with open(sys.argv[1], encoding="ascii") as lines:
    for line in lines:
        words = line.split()
        for word, after in zip(words, words[1:]):
            counts = follows.setdefault(word, {})
            counts[after] = counts.get(after, 0) + 1
best = sorted(((sum(c.values()), w) for w, c in follows.items()), reverse=True)
print(best[:10])
