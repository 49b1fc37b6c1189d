"""Makes inputs of the recorded programs: materials.py KIND SIZE writes one to standard output. The same size gives the same bytes."""

import math
import random
import struct
import sys

RANDOM = random.Random(1)


def sound(tenths):
    """A WAV file: notes that fade, with hiss; sizes are tenths of a second."""
    rate = 44100
    samples = []
    for _ in range(tenths * 4):
        tones = [(RANDOM.uniform(80, 2000), RANDOM.uniform(0.1, 0.3)) for _ in range(3)]
        for i in range(rate // 40):
            fade = math.exp(-i / 900)
            value = sum(loud * math.sin(2 * math.pi * tone * i / rate) for tone, loud in tones)
            samples.append(int(30000 * fade * value + RANDOM.gauss(0, 200)))
    data = struct.pack(f"<{len(samples)}h", *(max(-32768, min(32767, s)) for s in samples))
    head = struct.pack("<4sI8sIHHIIHH4sI", b"RIFF", 36 + len(data), b"WAVEfmt ", 16, 1, 1, rate, rate * 2, 2, 16, b"data", len(data))
    sys.stdout.buffer.write(head + data)


def letters(alphabet, length):
    return "".join(RANDOM.choices(alphabet, k=length))


def changed(sequence, alphabet, share):
    return "".join(RANDOM.choice(alphabet) if RANDOM.random() < share else s for s in sequence)


def chromosome(length):
    """DNA of which a third repeats earlier parts with changes."""
    parts, whole = [], ""
    while len(whole) < length:
        if len(whole) > 4000 and RANDOM.random() < 0.33:
            at = RANDOM.randrange(len(whole) - 1000)
            parts.append(changed(whole[at : at + 1000], "ACGT", 0.05))
        else:
            parts.append(letters("ACGT", 1000))
        whole = "".join(parts)
    return whole


def genome(length):
    print(">chromosome")
    print(chromosome(length))


def reads(length):
    """Parts of the genome of that length, with errors."""
    whole = chromosome(length)
    for read in range(length // 1500):
        at = RANDOM.randrange(len(whole) - 3000)
        print(f">read{read}")
        print(changed(whole[at : at + 3000], "ACGT", 0.06))


def alignment(count):
    """Aligned DNA in PHYLIP format, split off one another in turn."""
    rows = [letters("ACGT", 900)]
    while len(rows) < count:
        rows.append(changed(RANDOM.choice(rows), "ACGT", 0.08))
    print(count, 900)
    for name, row in enumerate(rows):
        print(f"t{name:<9}{row}")


def graph(nodes):
    print("digraph g {")
    for i in range(1, nodes):
        print(f"n{RANDOM.randrange(i)} -> n{i};")
        if RANDOM.random() < 0.3:
            print(f"n{RANDOM.randrange(nodes)} -> n{i};")
    print("}")


def json(rows):
    words = [letters("abcdefghij", 8) for _ in range(50)]
    row = lambda i: f'{{"id":{i},"a":{RANDOM.randrange(1000)},"b":"{RANDOM.choice(words)}","c":[{RANDOM.random():.6f},{RANDOM.random():.6f}]}}'
    print("[" + ",\n".join(row(i) for i in range(rows)) + "]")


def drawing(shapes):
    """PostScript: curves, fills and shades."""
    print("%!PS\n/Helvetica findfont 14 scalefont setfont")
    for i in range(shapes):
        x, y, r = RANDOM.randrange(500), RANDOM.randrange(700), RANDOM.randrange(5, 90)
        print(f"{RANDOM.random():.2f} {RANDOM.random():.2f} {RANDOM.random():.2f} setrgbcolor newpath {x} {y} {r} 0 360 arc")
        print(f"{x + r} {y} {x} {y + r} {x - r} {y - r} curveto {'fill' if i % 2 else 'stroke'}")
        print(f"{x} {y} moveto (shape {i}) show")
    print("showpage")


def bitmap(side):
    """A PBM picture of overlapping discs."""
    discs = [(RANDOM.randrange(side), RANDOM.randrange(side), RANDOM.randrange(4, 40) ** 2) for _ in range(120)]
    print(f"P1\n{side} {side}")
    for y in range(side):
        odd = lambda x: sum((x - u) ** 2 + (y - v) ** 2 < r for u, v, r in discs) & 1
        print(" ".join(str(odd(x)) for x in range(side)))


def cloud(points):
    """Points in a cube, for qhull."""
    print(f"3\n{points}")
    for _ in range(points):
        print(*(f"{RANDOM.random():.6f}" for _ in range(3)))


def factors(bits):
    """Two numbers whose product is known, as a question about bit vectors in SMT-LIB."""
    half = 1 << (bits - 1)
    a, b = (RANDOM.randrange(half, 2 * half) | 1 for _ in range(2))
    wide = f"(_ BitVec {2 * bits})"
    print(f"(set-logic QF_BV)(declare-const a {wide})(declare-const b {wide})")
    for name in "ab":
        print(f"(assert (bvult (_ bv1 {2 * bits}) {name}))(assert (bvult {name} (_ bv{2 * half} {2 * bits})))")
    print(f"(assert (= (bvmul a b) (_ bv{a * b} {2 * bits})))(check-sat)")


if __name__ == "__main__":
    globals()[sys.argv[1]](int(sys.argv[2]))
