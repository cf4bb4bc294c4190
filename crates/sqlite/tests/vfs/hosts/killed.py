"""A writer that is killed. Arguments: library, database, its URI."""
import os, signal, sqlite3, subprocess, sys, time

library, path, uri = sys.argv[1:4]


def connect():
    loader = sqlite3.connect(":memory:")
    loader.enable_load_extension(True)
    loader.load_extension(library)
    return sqlite3.connect(uri, uri=True)


if len(sys.argv) > 4:
    db = connect()
    db.execute("PRAGMA synchronous=NORMAL")
    for n in range(1, 1_000_000):
        with db:
            db.execute("INSERT INTO t VALUES (?, randomblob(900))", [n])
            db.execute("UPDATE last SET n = ?", [n])
        print(n, flush=True)

db = connect()
db.executescript("CREATE TABLE t(n INTEGER PRIMARY KEY, b BLOB); CREATE TABLE last(n); INSERT INTO last VALUES (0)")
db.close()
for round in range(3):
    with connect() as db:
        db.execute("DELETE FROM t")
        db.execute("UPDATE last SET n = 0")
    db.close()
    writer = subprocess.Popen([sys.executable, *sys.argv, "write"], stdout=subprocess.PIPE, text=True)
    acknowledged = 0
    deadline = time.monotonic() + 0.4 + 0.2 * round
    while time.monotonic() < deadline:
        acknowledged = int(writer.stdout.readline())
    writer.send_signal(signal.SIGKILL)
    for line in writer.stdout:
        acknowledged = int(line) if line.endswith("\n") else acknowledged
    writer.wait()
    db = connect()
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    last = db.execute("SELECT n FROM last").fetchone()[0]
    rows, most = db.execute("SELECT count(*), max(n) FROM t").fetchone()
    assert acknowledged <= last <= acknowledged + 1, (acknowledged, last)
    assert rows == most == last, (rows, most, last)
    assert last > 0
    db.close()
print("nothing acknowledged is lost")
