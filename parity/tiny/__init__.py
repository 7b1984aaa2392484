"""Small random checkpoints with prediction layers, to smoke-test any host without a download.

They walk through the vocabulary: the output row of each token's successor is that token's embedding, so the most
likely next token is known, and the layers between add noise. The prediction layer passes its token's embedding on,
so it proposes the same successor and is mostly accepted: a run with such a checkpoint exercises speculation, which
purely random weights would not.
"""

from parity.tiny.families import FAMILIES, Family
from parity.tiny.write import write_checkpoint

__all__ = ["FAMILIES", "Family", "write_checkpoint"]
