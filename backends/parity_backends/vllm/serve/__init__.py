"""How somebody runs vLLM in production: a `vllm serve` command line, its recipe file, or a server that is up.

deployment("vllm serve MODEL --tensor-parallel-size 4 --no-enable-prefix-caching")
deployment("recipe.yaml")
deployment("http://127.0.0.1:8000")
"""

from __future__ import annotations

from parity.messages import message
from parity.records.deployment import Deployment
from parity_backends.vllm.serve.command import from_words, words_of
from parity_backends.vllm.serve.flags import refused
from parity_backends.vllm.serve.recipe import is_recipe
from parity_backends.vllm.serve.running import from_server


def deployment(source: str) -> Deployment:
    """What is asked of the engine there.

    Raises ParityError for a flag that no vLLM has, a value that it would refuse, a file that cannot be read and a
    server that does not report its arguments.
    """
    source = source.strip()
    try:
        if source.startswith(("http://", "https://")):
            return from_server(source)
        if is_recipe(source):
            return from_words(["--config", source])
        return from_words(*words_of(source))
    except (RecursionError, OverflowError):
        raise refused(message("serve.too_deep", "a value in it is nested too deeply, or too large")) from None
