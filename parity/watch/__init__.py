"""The same plan again and again, against servers that run: is what they say today what they said before?"""

from __future__ import annotations

from parity.watch.loop import Probe, Watched, watch
from parity.watch.metrics import Metrics, Silent
from parity.watch.webhook import Webhook

__all__ = ["Metrics", "Probe", "Silent", "Watched", "Webhook", "watch"]
