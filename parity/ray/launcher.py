"""parity-ray: run a command on a node of a Ray cluster, with its stdin, stdout and stderr here.

    parity-ray --npus 1 python3 -c 'print("there")'

Made to stand in front of an interpreter (`command` of a backend in parity.toml). Ray chooses the node, waits until
the resources are free and sets CUDA_VISIBLE_DEVICES or ASCEND_RT_VISIBLE_DEVICES; replicas of an arm are spread.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

CANNOT = 69
"""EX_UNAVAILABLE: no Ray, no cluster, no such resources."""

POLL_SECONDS = 1.0


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="parity-ray", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--address", help="Of the cluster. [default: $RAY_ADDRESS, or the one on this machine]")
    parser.add_argument("--cpus", type=float, default=1.0, help="CPUs to ask for. [default: 1]")
    parser.add_argument("--gpus", type=float, default=0.0, help="GPUs to ask for.")
    parser.add_argument("--npus", type=float, default=0.0, help="Ascend NPUs to ask for (Ray's resource NPU).")
    parser.add_argument("--resource", action="append", default=[], metavar="NAME=N", help="Any other. Repeatable.")
    parser.add_argument(
        "--wait", type=float, default=3600.0, metavar="SECONDS", help="For the resources to be free. [default: 3600]"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="What to run there.")
    args = parser.parse_args(argv)
    if args.command[:1] == ["--"]:
        del args.command[0]
    if not args.command:
        parser.error("no command")
    args.resources = {}
    for each in args.resource:
        name, _, amount = each.partition("=")
        try:
            args.resources[name] = float(amount or 1)
        except ValueError:
            parser.error(f"--resource {each!r} is not NAME=N")
    if args.npus:
        args.resources["NPU"] = args.npus
    return args


def refuse(message: str, hint: str) -> NoReturn:
    """Nothing can run: say why, on stderr."""
    print(f"parity-ray: {message}\nparity-ray: {hint}", file=sys.stderr, flush=True)
    raise SystemExit(CANNOT)


def lacking(wanted: dict[str, float], total: dict[str, float]) -> dict[str, float]:
    """Resources of which the whole cluster has too few."""
    return {name: amount for name, amount in wanted.items() if amount > total.get(name, 0.0)}


def unreachable(address: str) -> str | None:
    """Why nothing listens at "host:port"; None where something does, or the address is of another form.

    Ray itself tries for minutes.
    """
    host, _, port = address.rpartition("://")[2].partition("/")[0].rpartition(":")
    if not host or not port.isdigit():
        return None
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as error:
        return f"nothing answers at {host}:{port} ({error})"
    return None


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(sys.argv[1:] if argv is None else argv)
    try:
        import ray
    except ImportError:
        refuse("Ray is not installed beside parity", "pip install 'parity-mtp[ray]', in the version of the cluster")
    from parity.ray import far_process

    address = args.address or os.environ.get("RAY_ADDRESS") or "auto"
    hint = "start one (`ray start --head`), or name it with --address"
    if (why := unreachable(address)) is not None:
        refuse(f"no Ray cluster: {why}", hint)
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # noqa: BLE001 - whatever it is, there is no cluster to run on
        refuse(f"no Ray cluster: {error}", hint)
    wanted = {"CPU": args.cpus, "GPU": args.gpus, **args.resources}
    missing = lacking(wanted, ray.cluster_resources())
    if missing:
        words = ", ".join(f"{name}={amount:g}" for name, amount in missing.items())
        refuse(f"the cluster has no {words}", f"it has {_shown(ray.cluster_resources())}")
    ray.cloudpickle.register_pickle_by_value(far_process)  # parity need not be installed on the node
    actor = (
        ray.remote(far_process.FarProcess)
        .options(
            num_cpus=args.cpus,
            num_gpus=args.gpus,
            resources=args.resources,
            scheduling_strategy="SPREAD",
            max_concurrency=4,
        )
        .remote()
    )
    try:
        ray.get(actor.start.remote(args.command), timeout=args.wait)
    except ray.exceptions.GetTimeoutError:
        refuse(f"no node had {_shown(wanted)} free within {args.wait:g} s", "wait longer (--wait), or ask for less")
    except (ray.exceptions.RayTaskError, ray.exceptions.RayActorError) as error:
        refuse(f"{args.command[0]} cannot be started there: {last_line(error)}", "is it the path on that node?")
    return converse(ray, actor)


def converse(ray: Any, actor: Any) -> int:
    """Pass bytes both ways until it ends; its exit code, CANNOT where the node is lost."""
    threading.Thread(target=_feed, args=(ray, actor), daemon=True).start()
    outputs = {1: 1, 2: 2}
    try:
        while True:
            for number, part in ray.get(actor.read.remote(POLL_SECONDS)):
                if number == 0:
                    code = int(part)
                    return code if code >= 0 else 128 - code
                _write_all(outputs[number], part)
    except (ray.exceptions.RayActorError, ray.exceptions.RayTaskError) as error:
        print(f"parity-ray: the node was lost: {last_line(error)}", file=sys.stderr, flush=True)
        return CANNOT
    except (BrokenPipeError, KeyboardInterrupt):
        ray.get(actor.kill.remote(), timeout=10)
        return 130


def _feed(ray: Any, actor: Any) -> None:
    while True:
        data = os.read(0, 65536)
        try:
            if not ray.get(actor.write.remote(data)) or not data:
                return
        except ray.exceptions.RayError:
            return  # `converse` sees the same and says it


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _shown(resources: dict[str, float]) -> str:
    plain = {name: amount for name, amount in sorted(resources.items()) if ":" not in name and amount}
    return ", ".join(f"{name}={amount:g}" for name, amount in plain.items())


def last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1][:300]


def entry() -> NoReturn:
    """Console script."""
    code = main()
    sys.stdout.flush()
    os._exit(code)  # Ray's own end takes seconds, and a thread may still wait for input


if __name__ == "__main__":
    entry()
