"""Writers, readers and checkpointers in threads of one process, each with a connection of its own.

    stress.py LIBRARY DATABASE SECONDS

SQLite 3.7.0 to 3.51.2 can count pages as checkpointed that never were, when a checkpoint acts on a header that it read
just before another connection restarted the WAL; the database is then damaged. Ends with 1 if anything is missing.
"""

import itertools
import random
import sqlite3
import sys
import threading
import time

library, path, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
WRITERS, READERS = 3, 2
over = threading.Event()
faults: list[str] = []
commits = [0] * WRITERS
checkpoints = {"PASSIVE": 0, "RESTART": 0, "TRUNCATE": 0}
restarts = 0


def load() -> None:
    loader = sqlite3.connect(":memory:")
    loader.enable_load_extension(True)
    loader.load_extension(library)
    loader.close()


def connect() -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{path}?vfs=highwater", uri=True, timeout=20, isolation_level=None)
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def guarded(work):
    """Any error of a thread is a fault, and ends all of them."""

    def run(*arguments: object) -> None:
        try:
            work(*arguments)
        except Exception as error:  # reported at the end
            faults.append(f"{work.__name__}{arguments}: {error!r}")
            over.set()

    return run


@guarded
def write(which: int) -> None:
    """Rows and their number, in one transaction; pages are changed often, so that a lost one shows."""
    connection, draw = connect(), random.Random(which)
    connection.execute(f"PRAGMA wal_autocheckpoint = {[2, 50, 0][which]}")
    while not over.is_set():
        n = commits[which] + 1
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO entry VALUES (?, ?, randomblob(?))", (which, n, draw.choice([20, 400, 3000])))
        connection.execute("UPDATE entry SET bytes = randomblob(100) WHERE writer = ? AND n > ?", (which, n - 4))
        connection.execute("DELETE FROM entry WHERE writer = ? AND n = ?", (which, n - 300))
        connection.execute("UPDATE total SET n = ? WHERE writer = ?", (n, which))
        connection.execute("COMMIT")
        commits[which] = n
    connection.close()


@guarded
def read(which: int) -> None:
    """Every snapshot is whole; some are held for a while, so that checkpoints stop at them."""
    connection, draw = connect(), random.Random(100 + which)
    while not over.is_set():
        connection.execute("BEGIN")
        for _ in range(draw.choice([1, 1, 4])):
            check(connection)
            time.sleep(draw.choice([0, 0, 0.01]))
        connection.execute("COMMIT")
        # Only a WAL that nobody reads can be restarted.
        time.sleep(draw.choice([0, 0.002, 0.02]))
    connection.close()


def check(connection: sqlite3.Connection) -> list[int]:
    rows = connection.execute(
        "SELECT t.n, ifnull(max(e.n), 0), count(e.n) FROM total t LEFT JOIN entry e USING (writer) "
        "GROUP BY t.writer ORDER BY t.writer"
    ).fetchall()
    for n, last, count in rows:
        if last != n or count != min(n, 300):
            raise AssertionError(f"a snapshot has {count} rows up to {last}, and counts {n}")
    return [n for n, _, _ in rows]


@guarded
def checkpoint(mode: str) -> None:
    global restarts
    connection, draw = connect(), random.Random(mode)
    connection.execute(f"PRAGMA busy_timeout = {0 if mode == 'PASSIVE' else 20}")
    before = 0
    for n in itertools.count():
        if over.is_set():
            break
        try:
            _, frames, _ = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
            checkpoints[mode] += 1
            restarts += frames < before
            before = frames
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
        if n % 3 == 0:
            time.sleep(draw.random() * 0.004)
    connection.close()


def main() -> int:
    load()
    first = connect()
    first.execute("CREATE TABLE entry (writer INTEGER, n INTEGER, bytes BLOB, PRIMARY KEY (writer, n)) WITHOUT ROWID")
    first.execute("CREATE TABLE total (writer INTEGER PRIMARY KEY, n INTEGER)")
    first.executemany("INSERT INTO total VALUES (?, 0)", [(which,) for which in range(WRITERS)])
    threads = [threading.Thread(target=write, args=(which,)) for which in range(WRITERS)]
    threads += [threading.Thread(target=read, args=(which,)) for which in range(READERS)]
    modes = ("PASSIVE", "PASSIVE", "RESTART", "TRUNCATE")
    threads += [threading.Thread(target=checkpoint, args=(mode,)) for mode in modes]
    for thread in threads:
        thread.start()
    over.wait(seconds)
    over.set()
    for thread in threads:
        thread.join()
    sound = first.execute("PRAGMA integrity_check").fetchall()
    if sound != [("ok",)]:
        faults.append(f"the database is damaged: {sound[:3]}")
    elif check(first) != commits:
        faults.append(f"{check(first)} commits are there, {commits} were made")
    print(f"SQLite {sqlite3.sqlite_version}: commits {commits}, checkpoints {checkpoints}, WAL restarts {restarts}")
    print("\n".join(faults) or "nothing is missing")
    if not faults:
        first.execute("SELECT highwater_synced(?, 60000)", (path,)).fetchall()
    first.close()
    return 1 if faults else 0


sys.exit(main())
