"""Planets as objects: floating point in an interpreter."""

import sys


class Body:
    def __init__(self, x, y, vx, vy, mass):
        self.x, self.y, self.vx, self.vy, self.mass = x, y, vx, vy, mass


def step(bodies, dt):
    for a in bodies:
        for b in bodies:
            if a is not b:
                dx, dy = b.x - a.x, b.y - a.y
                pull = b.mass * dt / (dx * dx + dy * dy + 0.01) ** 1.5
                a.vx += pull * dx
                a.vy += pull * dy
    for a in bodies:
        a.x += a.vx * dt
        a.y += a.vy * dt


planets = [Body(i, i * i % 7, -i % 3, 1 / (i + 1), 1 + i % 4) for i in range(9)]
for _ in range(int(sys.argv[1])):
    step(planets, 0.01)
print(sum(a.x * a.y for a in planets))
