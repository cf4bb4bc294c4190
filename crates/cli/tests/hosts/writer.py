"""Commits until it is killed, and says on standard output what it committed.

    writer.py LIBRARY DATABASE SYNCHRONOUS SEED

At its start it checks the database and prints `found N`: rows 1 to N are there and nothing else. After each commit it
prints `committed N`. Its transactions differ in size, spill out of a small cache, roll back to savepoints, change and
delete older rows, and checkpoints of every kind run between them.
"""

import random
import signal
import sqlite3
import sys

library, path, synchronous, seed = sys.argv[1:5]
draw = random.Random(int(seed))

SCHEMA = """
CREATE TABLE IF NOT EXISTS entry (n INTEGER PRIMARY KEY, size INTEGER, bytes BLOB);
CREATE INDEX IF NOT EXISTS entry_size ON entry (size);
CREATE TABLE IF NOT EXISTS total (entries INTEGER, bytes INTEGER);
INSERT INTO total SELECT 0, 0 WHERE NOT EXISTS (SELECT 1 FROM total);
"""


def open_database() -> sqlite3.Connection:
    loader = sqlite3.connect(":memory:")
    loader.enable_load_extension(True)
    loader.load_extension(library)
    loader.close()
    connection = sqlite3.connect(f"file:{path}?vfs=highwater", uri=True, isolation_level=None)
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("PRAGMA cache_size = 20")
    connection.execute("PRAGMA wal_autocheckpoint = 200")
    return connection


def check(connection: sqlite3.Connection) -> int:
    """The number of entries, if they are whole: a commit is there with everything it did, or not at all."""
    sound = connection.execute("PRAGMA integrity_check").fetchall()
    assert sound == [("ok",)], f"the database is damaged: {sound[:5]}"
    connection.executescript(SCHEMA)
    sums = "SELECT count(*), ifnull(max(n), 0), ifnull(sum(size), 0) FROM entry"
    count, last, size = connection.execute(sums).fetchone()
    wrong = connection.execute("SELECT count(*) FROM entry WHERE size <> ifnull(length(bytes), size)").fetchone()[0]
    entries, total = connection.execute("SELECT entries, bytes FROM total").fetchone()
    assert (count, size, wrong) == (last, total, 0) and entries == last, f"{(count, last, size, wrong, entries, total)}"
    return last


def write(connection: sqlite3.Connection, n: int) -> None:
    """One transaction: entry `n` with its part in the total, and things that must leave no trace."""
    size = draw.choice([10, 100, 1000, 5000, 5000, 200_000 if n % 10 == 0 else 300])
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO entry VALUES (?, ?, randomblob(?))", (n, size, size))
    connection.execute("SAVEPOINT undone")
    connection.execute("UPDATE entry SET bytes = randomblob(size), size = size + 1 WHERE n > ?", (n - 5,))
    connection.execute("DELETE FROM total")
    connection.execute("ROLLBACK TO undone")
    if n % 7 == 0:
        connection.execute("UPDATE entry SET bytes = NULL WHERE n < ? AND bytes IS NOT NULL", (n - 50,))
    connection.execute("UPDATE total SET entries = entries + 1, bytes = bytes + ?", (size,))
    connection.execute("COMMIT")


def main() -> None:
    # Whoever starts tests in the background may have had interrupts ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    connection = open_database()
    n = check(connection)
    print(f"found {n}", flush=True)
    while True:
        n += 1
        write(connection, n)
        print(f"committed {n}", flush=True)
        if draw.random() < 0.05:
            connection.execute(f"PRAGMA wal_checkpoint({draw.choice(['PASSIVE', 'FULL', 'RESTART', 'TRUNCATE'])})")


main()
