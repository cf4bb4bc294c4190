#!/usr/bin/env python3
"""The main job, on real input: a Django project's database survives the loss of its files.

A stock Django project writes through the Highwater extension while every commit is replicated; its writer is killed
in the middle, its database's files are deleted, the database is restored elsewhere from the stream, and what was
committed, acknowledged, restored and lost is printed. Ends with 1 if anything acknowledged is missing.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "demo-data"
BINARY = ROOT / "target/debug/highwater"
SUFFIX = "dylib" if sys.platform == "darwin" else "so"
EXTENSION = ROOT / f"target/debug/libhighwater_sqlite.{SUFFIX}"
DJANGO = "Django>=5.2,<5.3"


def say(text: str) -> None:
    print(f"demo: {text}", flush=True)


def run(*command: object, **options: object) -> str:
    """Runs a program, returns its standard output, and ends the demonstration with its errors if it fails."""
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if result.returncode != 0:
        sys.exit(f"demo: {' '.join(map(str, command))} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


class Server:
    """A Highwater server of one node on a free loopback port."""

    def __init__(self, data: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.log = (DATA / "server.log").open("w")
        command = [BINARY, "serve", "--data", data, "--listen", self.address]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        self.wait_until_ready()

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

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=30)
        self.log.close()


def environment() -> Path:
    """A virtual environment with Django and the `.pth` file that loads the extension; returns its Python."""
    venv = DATA / "venv"
    python = venv / "bin/python"
    if not python.exists():
        say(f"making an environment with {DJANGO}")
        run(sys.executable, "-m", "venv", venv)
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", DJANGO)
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
    variables = dict(os.environ, HIGHWATER_EXTENSION=str(EXTENSION), SHOP_DATABASE=str(database))
    return folder, variables


class Writer:
    """The application: what it said before it was killed."""

    def __init__(self, python: Path, folder: Path, variables: dict[str, str], database: Path, writes: int) -> None:
        self.committed = self.synced = 0
        command = [python, ROOT / "demo/writer.py", database, str(writes * 2)]
        variables = dict(variables, PYTHONPATH=str(folder))
        self.errors = (DATA / "writer.log").open("w")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=variables)

    def run_until(self, writes: int) -> float:
        """Lets it write, kills it in the middle of the next commit, returns the seconds it took."""
        begun = time.monotonic()
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.take(line)
            if self.committed >= writes:
                break
            if line.startswith("committed") and self.committed % 500 == 0:
                say(f"  {self.committed} commits")
        seconds = time.monotonic() - begun
        self.process.send_signal(signal.SIGKILL)
        for line in self.process.stdout:
            self.take(line)
        self.process.wait()
        self.errors.close()
        if self.committed < writes:
            sys.exit(f"demo: the writer ended early:\n{(DATA / 'writer.log').read_text()}")
        return seconds

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


def highwater(*arguments: object) -> dict:
    return json.loads(run(BINARY, *arguments, "--json"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="600 writes instead of 4,000")
    writes = 600 if parser.parse_args().quick else 4000

    DATA.mkdir(exist_ok=True)
    for name in ("project", "server", "app", "restored"):
        shutil.rmtree(DATA / name, ignore_errors=True)
    (DATA / "app").mkdir()
    (DATA / "restored").mkdir()
    database, restored = DATA / "app/shop.db", DATA / "restored/shop.db"

    python = environment()
    server = Server(DATA / "server")
    url = f"http://{server.address}/v1/stream/demo/shop"
    try:
        return demonstrate(python, url, database, restored, writes)
    finally:
        server.stop()


def demonstrate(python: Path, url: str, database: Path, restored: Path, writes: int) -> int:
    folder, variables = project(python, database)
    say(f"binding {database.relative_to(ROOT)} to {url}")
    run(BINARY, "db", "bind", database, url)

    begun = time.monotonic()
    run(python, "manage.py", "migrate", cwd=folder, env=variables)
    say(f"Django's migrations ran in {time.monotonic() - begun:.1f} s")

    say(f"writing {writes} commits through the ORM, then SIGKILL")
    writer = Writer(python, folder, variables, database, writes)
    seconds = writer.run_until(writes)
    before = highwater("db", "status", database)["commits"]
    say("the writer is dead; deleting the database, its log and everything else it left")
    delete(database)

    begun = time.monotonic()
    run(BINARY, "db", "restore", url, restored)
    restore_seconds = time.monotonic() - begun
    present = users(restored)

    whole = present == list(range(1, len(present) + 1))
    lost_acknowledged = max(0, writer.synced - len(present))
    lost_unacknowledged = max(0, writer.committed - len(present)) - lost_acknowledged
    print()
    print(f"  committed      {writer.committed:6}  in {seconds:.1f} s ({writer.committed / seconds:.0f} a second)")
    print(f"  acknowledged   {writer.synced:6}  highwater_synced() answered for these")
    print(f"  log, pending   {before['logged']:6}, {before['pending']} as of the last status before the kill")
    print(f"  restored       {len(present):6}  in {restore_seconds:.2f} s, integrity_check ok")
    print(f"  lost           {lost_acknowledged:6}  acknowledged, {lost_unacknowledged} not yet acknowledged")
    print()
    if lost_acknowledged or not whole:
        say("FAILED: an acknowledged commit is missing, or the restored commits have a gap")
        return 1
    continue_from(python, folder, variables, restored, url, len(present))
    say("passed: nothing that was acknowledged was lost")
    return 0


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


if __name__ == "__main__":
    sys.exit(main())
