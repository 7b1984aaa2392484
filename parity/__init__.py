"""parity: are two token streams the same, and if not, is it noise or a bug?"""

__version__ = "0.1.0"
