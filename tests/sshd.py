"""A real sshd on loopback, for one user and with keys of its own: the far host of the tests.

OpenSSH's server, as installed; where it is not, Debian's openssh-server is downloaded with apt-get and unpacked into
a cache (nothing is installed, no service starts). For root it runs in mount namespaces of its own, in which the user
`sshd` exists that it wants, and in which directories of this machine can be hidden from the far side.
"""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

PACKAGES = ("openssh-server", "libwrap0")
_ENTRY = "sshd:x:100:65534:privilege separation:/run/sshd:/usr/sbin/nologin"


class NoSshd(Exception):
    """Why there is none here."""


@dataclass
class Server:
    """An sshd that can be started: the program, and where its libraries are."""

    program: Path
    libraries: str | None = None


def find_sshd(cache: Path) -> Server:
    """The installed sshd, or Debian's unpacked into `cache`. Raises NoSshd."""
    if shutil.which("ssh") is None:
        raise NoSshd("there is no ssh client: apt-get install openssh-client")
    installed = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if installed:
        return Server(Path(installed))
    unpacked = cache / "root"
    program = unpacked / "usr" / "sbin" / "sshd"
    if not program.exists():
        _unpack(cache, unpacked)
    libraries = sorted({str(path.parent) for path in unpacked.rglob("libwrap.so*")})
    return Server(program, ":".join(libraries))


def _unpack(cache: Path, root: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise NoSshd("sshd is not installed, and without apt-get it cannot be fetched: install OpenSSH's server")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        command = ["apt-get", "download", *PACKAGES]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:  # a new machine has no package lists yet
            subprocess.run(["apt-get", "update"], capture_output=True, timeout=300, check=False)
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise NoSshd(f"sshd is not installed, and {shlex.join(command)} says: {done.stderr.strip()[-300:]}")
        fresh = Path(folder) / "root"
        for package in Path(folder).glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(package), str(fresh)], check=True, timeout=120)
        shutil.rmtree(root, ignore_errors=True)
        fresh.replace(root)


@dataclass
class Sshd:
    """A running server. `command` is the prefix that reaches it."""

    server: Server
    directory: Path
    hide: Sequence[Path] = ()
    small: Sequence[Path] = ()
    """Directories that are disks of 64 KiB on the far side."""
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def command(self) -> list[str]:
        return ["ssh", "-F", str(self.directory / "client"), "far"]

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def start(self) -> Sshd:
        """Raises NoSshd with its own words where it does not come up."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        for name in ("host", "user"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.directory / f"{name}_key")], check=True
            )
        self.port = _free_port()
        self._write_configuration()
        command = [str(self.server.program.resolve()), "-D", "-e", "-f", str(self.directory / "server")]
        if os.geteuid() == 0:
            command = self._in_a_namespace(command)
        elif self.hide or self.small:
            raise NoSshd("only root can mount anything for the far side")
        env = dict(os.environ)
        if self.server.libraries:
            env["LD_LIBRARY_PATH"] = self.server.libraries
        with (self.directory / "log").open("wb") as log:
            self.process = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        for _ in range(100):
            if self.process.poll() is not None:
                raise NoSshd(f"sshd does not start: {self.log[-500:]}")
            if subprocess.run([*self.command, "true"], capture_output=True, timeout=60, check=False).returncode == 0:
                return self
            time.sleep(0.1)
        log_text = self.log
        self.stop()
        raise NoSshd(f"sshd lets nobody in: {log_text[-500:]}")

    def _write_configuration(self) -> None:
        (self.directory / "authorized").write_text((self.directory / "user_key.pub").read_text())
        public = (self.directory / "host_key.pub").read_text()
        (self.directory / "known").write_text(f"[127.0.0.1]:{self.port} {public}")
        server = {
            "ListenAddress": "127.0.0.1",
            "Port": str(self.port),
            "HostKey": str(self.directory / "host_key"),
            "AuthorizedKeysFile": str(self.directory / "authorized"),
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
            "PrintMotd": "no",
            "MaxStartups": "100",
        }
        client = {
            "HostName": "127.0.0.1",
            "Port": str(self.port),
            "User": getpass.getuser(),
            "IdentityFile": str(self.directory / "user_key"),
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": str(self.directory / "known"),
            "StrictHostKeyChecking": "yes",
        }
        (self.directory / "server").write_text("".join(f"{name} {value}\n" for name, value in server.items()))
        (self.directory / "client").write_text(
            "Host far\n" + "".join(f"  {name} {value}\n" for name, value in client.items())
        )

    def _in_a_namespace(self, command: list[str]) -> list[str]:
        """Mounts of its own: a passwd that has the user sshd, the directory it wants, and what is hidden."""
        if shutil.which("unshare") is None:
            raise NoSshd("running as root, sshd needs its own user; without unshare it cannot be given one")
        users = Path("/etc/passwd").read_text()
        if not any(line.startswith("sshd:") for line in users.splitlines()):
            users += _ENTRY + "\n"
        passwd = self.directory / "passwd"
        passwd.write_text(users)
        passwd.chmod(0o644)
        steps = [
            "mount --make-rprivate /",
            f"mount --bind {shlex.quote(str(passwd))} /etc/passwd",
            "mount -t tmpfs -o mode=755 none /run",
            "mkdir -m 755 /run/sshd",
            *(f"mount -t tmpfs none {shlex.quote(str(path))}" for path in self.hide),
            *(f"mount -t tmpfs -o size=64k none {shlex.quote(str(path))}" for path in self.small),
            f"exec {shlex.join(command)}",
        ]
        return ["unshare", "-m", "sh", "-c", " && ".join(steps)]

    def connections(self) -> list[int]:
        """Process ids of the servers of single connections."""
        assert self.process is not None
        return [pid for pid in _children(self.process.pid) if _alive(pid)]

    def cut(self) -> None:
        """End every connection from the far side, as a host that goes down does."""
        for pid in self.connections():
            os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        if self.process is not None:
            self.cut()
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            finally:
                self.process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            if parent == pid:
                found.append(int(entry.name))
    return found


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
