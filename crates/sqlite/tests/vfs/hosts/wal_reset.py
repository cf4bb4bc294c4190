"""Checkpoints against restarts of the -wal, with several connections. Arguments: library, database, its URI.

SQLite 3.7.0 to 3.51.2 could count pages as copied into the file that never were. ROUNDS commits by default 20,000.
"""
import json, os, sqlite3, sys, threading

library, path, uri = sys.argv[1:4]
rounds = int(os.environ.get("ROUNDS", "20000"))
loader = sqlite3.connect(":memory:")
loader.enable_load_extension(True)
loader.load_extension(library)


def connect():
    db = sqlite3.connect(uri, uri=True, timeout=20, isolation_level=None)
    db.execute("PRAGMA synchronous=NORMAL")
    return db


db = connect()
told = json.loads(db.execute("PRAGMA highwater_status").fetchone()[0])["sqlite"]
assert told["version"] == sqlite3.sqlite_version, told
print("SQLite", told["version"], "has the bug" if told["wal_reset_bug"] else "has it fixed")
db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v INT, b BLOB)")
db.executemany("INSERT INTO t VALUES (?, 0, randomblob(3000))", [(n,) for n in range(40)])
over = threading.Event()
faults = []


def checkpointer(mode):
    own = connect()
    own.execute("PRAGMA busy_timeout=0")
    while not over.is_set():
        try:
            own.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                faults.append(error)
                return
    own.close()


def writer(which):
    own = connect()
    own.execute("PRAGMA wal_autocheckpoint=3")
    for n in range(1, rounds + 1):
        own.execute("UPDATE t SET v = ?, b = randomblob(3000) WHERE id % 10 = ?", [n, n % 5 * 2 + which])
        if n % 20 == 0:
            wrong = own.execute("SELECT count(*) FROM t WHERE id % 2 = ? AND v > 0 AND v % 5 * 2 + ? != id % 10", [which, which])
            if wrong.fetchone() != (0,):
                faults.append(f"writer {which}, round {n}: a page went missing")
                return
    own.close()


threads = [threading.Thread(target=checkpointer, args=[mode]) for mode in ("PASSIVE", "PASSIVE", "RESTART")]
writers = [threading.Thread(target=writer, args=[which]) for which in (0, 1)]
for thread in threads + writers:
    thread.start()
for thread in writers:
    thread.join()
over.set()
for thread in threads:
    thread.join()
assert not faults, faults
assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
expected = sum(4 * 2 * (rounds - k) for k in range(5))
assert db.execute("SELECT sum(v) FROM t").fetchone() == (expected,)
db.close()
db = connect()
assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
assert db.execute("SELECT sum(v) FROM t").fetchone() == (expected,)
db.close()
print("no page lost")
