"""A process that forks with an open database. Arguments: library, database, its URI."""
import json, os, sqlite3, sys, time

library, path, uri = sys.argv[1:4]
loader = sqlite3.connect(":memory:")
loader.enable_load_extension(True)
loader.load_extension(library)

db = sqlite3.connect(uri, uri=True)
db.execute("CREATE TABLE t(a)")
db.execute("INSERT INTO t VALUES (1)")
db.commit()


def child():
    # The inherited connection serves nothing.
    for sql in ("SELECT * FROM t", "INSERT INTO t VALUES (2)"):
        try:
            db.execute(sql).fetchall()
        except sqlite3.Error as error:
            assert "disk I/O error" in str(error), error
        else:
            raise AssertionError(f"{sql} worked in the child")
    reason = db.execute("PRAGMA highwater_error").fetchone()[0]
    assert reason.startswith("forked: "), reason
    # The parent owns the database as long as it lives.
    try:
        sqlite3.connect(uri, uri=True)
    except sqlite3.OperationalError as error:
        assert f"process {os.getppid()}" in str(error), error
    else:
        raise AssertionError("opened in the child")
    # The extension itself goes on: in memory, and with its functions.
    assert sqlite3.connect(":memory:").execute("SELECT highwater_default_vfs(0)").fetchone() == (0,)
    db.close()


pid = os.fork()
if pid == 0:
    try:
        child()
    except BaseException as error:
        print("child:", repr(error), flush=True)
        os._exit(1)
    os._exit(0)
_, status = os.waitpid(pid, 0)
assert status == 0, status

# The parent is as before, also after the child closed what it had inherited.
db.execute("INSERT INTO t VALUES (3)")
db.commit()
assert db.execute("SELECT sum(a) FROM t").fetchone() == (4,)
db.close()

# Closed by the parent, it may be opened by a child that comes later, which commits, and by the parent again.
pid = os.fork()
if pid == 0:
    try:
        own = sqlite3.connect(uri, uri=True)
        own.execute("PRAGMA synchronous=NORMAL")
        own.execute("INSERT INTO t VALUES (5)")
        own.commit()
        # The timer of the parent is not in this process; it has one of its own.
        time.sleep(0.5)
        log = json.loads(own.execute("PRAGMA highwater_status").fetchone()[0])["log"]
        assert log["unsynced_bytes"] == 0, log
        own.close()
    except BaseException as error:
        print("child:", repr(error), flush=True)
        os._exit(1)
    os._exit(0)
_, status = os.waitpid(pid, 0)
assert status == 0, status
db = sqlite3.connect(uri, uri=True)
assert db.execute("SELECT sum(a) FROM t").fetchone() == (9,)
db.close()
print("parent and child are well")
