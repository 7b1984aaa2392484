"""A small engine in numpy: real decoding with real rounding noise, and faults with their truth, from a seed.

    world = World(seed=0)
    asked = world.requests(64)
    base = world.run(asked, BASE, max_tokens=128)
    candidate = world.run(asked, speculating(2), fault=catalogue()[0], max_tokens=128)
    scores = world.score(base.capture, candidate.capture)

It decodes some ten thousands of tokens a second on one core, so that claims about error rates can be tried on more
tokens than an engine makes in a day. `model` holds the weights, `rounding` what an arm rounds where, `engine` the
steps, `choosing` a request's own rules, `faults` what can be wrong, `world` puts captures together.
"""

from worlds.engine import Arm, Broken
from worlds.faults import Fault, catalogue
from worlds.model import FLAT, LASTING, PEAKED, ROUGH, SURE, Shape
from worlds.rounding import Orders
from worlds.world import BASE, SMALL, WIDE, Asked, Hit, Made, Truth, World, speculating

__all__ = [
    "BASE",
    "FLAT",
    "LASTING",
    "PEAKED",
    "ROUGH",
    "SMALL",
    "SURE",
    "WIDE",
    "Arm",
    "Asked",
    "Broken",
    "Fault",
    "Hit",
    "Made",
    "Orders",
    "Shape",
    "Truth",
    "World",
    "catalogue",
    "speculating",
]
