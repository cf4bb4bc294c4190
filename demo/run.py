#!/usr/bin/env python3
"""The main job, on real input: a Django project's database survives the loss of its files.

A stock Django project writes through the Highwater extension while every commit is replicated; its writer is killed
in the middle, its database's files are deleted, the database is restored elsewhere from the stream, and what was
committed, acknowledged, restored and lost is printed. Ends with 1 if anything acknowledged is missing.
"""

import argparse
import importlib.util
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "demo-data"
BUILT = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
BINARY = BUILT / "highwater"
EXTENSION = BUILT / f"libhighwater_sqlite.{'dylib' if sys.platform == 'darwin' else 'so'}"
DJANGO = "Django>=5.2,<5.3"

# Seconds without a word from the writer after which it counts as stuck.
PATIENCE = 120


def say(text: str) -> None:
    print(f"demo: {text}", flush=True)


def run(*command: object, hint: str = "", **options: object) -> str:
    """Runs a program, returns its standard output, and ends the demonstration with its errors if it fails."""
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if result.returncode != 0:
        sys.exit(f"demo: {' '.join(map(str, command))} failed:\n{result.stdout}{result.stderr}{hint}")
    return result.stdout


def check_tools() -> None:
    """Says what to install or build before anything is begun."""
    if not hasattr(sqlite3.Connection, "enable_load_extension"):
        sys.exit(
            f"demo: {sys.executable} cannot load SQLite extensions (pyenv's and macOS's cannot). "
            "On Debian or Ubuntu: apt-get install python3 python3-venv, then run this with /usr/bin/python3"
        )
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        sys.exit(f"demo: {sys.executable} cannot make environments. On Debian or Ubuntu: apt-get install python3-venv")
    for built in (BINARY, EXTENSION):
        if not built.exists():
            sys.exit(f"demo: {built} is not there; run `cargo build -p highwater -p highwater-sqlite`")


def end(process: subprocess.Popen) -> None:
    """Ends a process for certain, gently if it lets itself be."""
    process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Server:
    """A Highwater server of one node on a free loopback port, for the time of a `with` block."""

    def __init__(self, data: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.log = (DATA / "server.log").open("w")
        command = [BINARY, "serve", "--data", data, "--listen", self.address]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def __enter__(self) -> "Server":
        self.wait_until_ready()
        return self

    def __exit__(self, *_: object) -> None:
        end(self.process)
        self.log.close()

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"http://{self.address}/readyz", timeout=1) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit(f"demo: the server did not become ready:\n{(DATA / 'server.log').read_text()}")


def environment() -> Path:
    """A virtual environment with Django and the `.pth` file that loads the extension; returns its Python."""
    venv = DATA / "venv"
    python = venv / "bin/python"
    # One that was left half made, or whose Python is gone, is made again.
    whole = python.exists() and subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0
    if not whole:
        say(f"making an environment with {DJANGO}")
        run(sys.executable, "-m", "venv", "--clear", venv)
    hint = "demo: Django comes from PyPI, which must be reachable for the first run"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", DJANGO, hint=hint)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    shutil.copy(ROOT / "demo/autoload.py", site / "highwater_autoload.py")
    (site / "highwater.pth").write_text("import highwater_autoload\n")
    return python


def project(python: Path, database: Path) -> tuple[Path, dict[str, str]]:
    """A project as `startproject` makes it, with nothing set but DATABASES."""
    folder = DATA / "project"
    folder.mkdir()
    run(python, "-m", "django", "startproject", "shop", folder)
    with (folder / "shop/settings.py").open("a") as settings:
        settings.write(
            "\nimport os\n\nDATABASES = {'default': {'ENGINE': 'django.db.backends.sqlite3', "
            "'NAME': os.environ['SHOP_DATABASE']}}\n"
        )
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HIGHWATER_", "PYTHON"))}
    variables = dict(
        inherited,
        DJANGO_SETTINGS_MODULE="shop.settings",
        HIGHWATER_EXTENSION=str(EXTENSION),
        SHOP_DATABASE=str(database),
    )
    return folder, variables


class Writer:
    """The application, for the time of a `with` block: what it said before it was killed."""

    def __init__(self, python: Path, folder: Path, variables: dict[str, str], database: Path, writes: int) -> None:
        self.committed = self.synced = 0
        command = [python, ROOT / "demo/writer.py", database, str(writes * 2)]
        variables = dict(variables, PYTHONPATH=str(folder))
        self.errors = (DATA / "writer.log").open("w")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=variables)

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        end(self.process)
        self.errors.close()

    def run_until(self, writes: int) -> float:
        """Lets it write, kills it in the middle of the next commit, returns the seconds it took."""
        begun = time.monotonic()
        for line in self.lines():
            self.take(line)
            if self.committed >= writes:
                break
            if line.startswith("committed") and self.committed % 500 == 0:
                say(f"  {self.committed} commits")
        seconds = time.monotonic() - begun
        self.process.send_signal(signal.SIGKILL)
        for line in self.lines():
            self.take(line)
        self.process.wait()
        if self.committed < writes:
            sys.exit(f"demo: the writer ended, or stood still, early:\n{(DATA / 'writer.log').read_text()}")
        return seconds

    def lines(self) -> Iterator[str]:
        """What it says, until it ends; one that falls silent is killed."""
        assert self.process.stdout is not None
        while True:
            watchdog = threading.Timer(PATIENCE, self.process.kill)
            watchdog.start()
            line = self.process.stdout.readline()
            watchdog.cancel()
            if not line:
                return
            yield line

    def take(self, line: str) -> None:
        what, number = line.split()
        setattr(self, what, int(number))


def delete(database: Path) -> None:
    database.unlink()
    shutil.rmtree(database.with_name(database.name + "-highwater"))


def users(database: Path) -> list[int]:
    """The numbers of the users in a database, read by the stock SQLite without the extension."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    check = connection.execute("PRAGMA integrity_check").fetchall()
    if check != [("ok",)]:
        sys.exit(f"demo: the restored database is damaged: {check}")
    rows = connection.execute("SELECT username FROM auth_user WHERE username LIKE 'user%'").fetchall()
    connection.close()
    return sorted(int(name.removeprefix("user")) for (name,) in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="600 writes instead of 4,000")
    writes = 600 if parser.parse_args().quick else 4000
    check_tools()

    DATA.mkdir(exist_ok=True)
    for name in ("project", "server", "app", "restored"):
        shutil.rmtree(DATA / name, ignore_errors=True)
    (DATA / "app").mkdir()
    (DATA / "restored").mkdir()
    database, restored = DATA / "app/shop.db", DATA / "restored/shop.db"

    python = environment()
    with Server(DATA / "server") as server:
        url = f"http://{server.address}/v1/stream/demo/shop"
        return demonstrate(python, url, database, restored, writes)


def demonstrate(python: Path, url: str, database: Path, restored: Path, writes: int) -> int:
    folder, variables = project(python, database)
    say(f"binding {database.relative_to(ROOT)} to {url}")
    run(BINARY, "db", "bind", database, url)

    begun = time.monotonic()
    run(python, "manage.py", "migrate", cwd=folder, env=variables)
    say(f"Django's migrations ran in {time.monotonic() - begun:.1f} s")

    say(f"writing {writes} commits through the ORM, then SIGKILL")
    with Writer(python, folder, variables, database, writes) as writer:
        seconds = writer.run_until(writes)
    say("the writer is dead; deleting the database, its log and everything else it left")
    delete(database)

    say(f"restoring it to {restored.relative_to(ROOT)} from the stream alone")
    begun = time.monotonic()
    run(BINARY, "db", "restore", url, restored)
    restore_seconds = time.monotonic() - begun
    present = users(restored)
    passed = report(writer, seconds, present, restore_seconds)
    if not passed:
        say("FAILED: an acknowledged commit is missing, or the restored commits have a gap")
        return 1
    continue_from(python, folder, variables, restored, url, len(present))
    say("passed: nothing that was acknowledged was lost")
    return 0


def report(writer: Writer, seconds: float, present: list[int], restore_seconds: float) -> bool:
    """Prints what became of the commits; whether nothing acknowledged is missing, and none from the middle."""
    whole = present == list(range(1, len(present) + 1))
    lost_acknowledged = max(0, writer.synced - len(present))
    lost_unacknowledged = max(0, writer.committed - len(present)) - lost_acknowledged
    took = f"{seconds:.1f} s, {writer.committed / seconds:.0f} a second"
    rows = [
        ("committed", writer.committed, f"COMMIT had returned when the writer was killed; {took}"),
        ("acknowledged", writer.synced, "of these highwater_synced() had answered for"),
        ("restored", len(present), f"in {restore_seconds:.2f} s, PRAGMA integrity_check ok"),
        ("lost", lost_acknowledged, "acknowledged commits"),
        ("", lost_unacknowledged, "commits that were not acknowledged yet"),
    ]
    print()
    for name, count, meaning in rows:
        print(f"  {name:12} {count:6}  {meaning}")
    print(flush=True)
    return whole and lost_acknowledged == 0


def continue_from(
    python: Path, folder: Path, variables: dict[str, str], restored: Path, url: str, present: int
) -> None:
    """The application goes on at the new place, and its database equals its stream again."""
    script = (
        "from django.contrib.auth.models import User; from django.db import connection; "
        "User.objects.create(username='after-restore'); c = connection.cursor(); "
        "c.execute('SELECT highwater_synced(%s, 20000)', [connection.settings_dict['NAME']]); "
        "print(User.objects.count())"
    )
    variables = dict(variables, SHOP_DATABASE=str(restored))
    count = run(python, "manage.py", "shell", "-v", "0", "-c", script, cwd=folder, env=variables).split()[-1]
    if int(count) != present + 1:
        sys.exit(f"demo: the application counts {count} users after the restore, not {present + 1}")
    run(BINARY, "db", "verify", restored, url)
    say("the application went on from the restored file, and the file equals the stream")


def ended(number: int, _frame: object) -> None:
    """A signal unwinds the stack, so that every process that was started is ended."""
    sys.exit(f"\ndemo: stopped by {signal.Signals(number).name}, with everything it started; its files are in {DATA}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, ended)
    signal.signal(signal.SIGINT, ended)
    sys.exit(main())
