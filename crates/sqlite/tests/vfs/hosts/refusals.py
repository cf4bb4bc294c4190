"""What an application is told. Arguments: library, database, its URI."""
import json, os, sqlite3, subprocess, sys

library, path, uri = sys.argv[1:4]
loader = sqlite3.connect(":memory:")
loader.enable_load_extension(True)
loader.load_extension(library)


def refused(action, *words):
    try:
        action()
    except sqlite3.Error as error:
        text = str(error)
        assert all(word in text for word in words), text
        return error
    raise AssertionError(f"not refused: {words}")


plain = path + ".plain"
refused(lambda: sqlite3.connect(f"file:{plain}?vfs=highwater", uri=True), "not_bound", plain, "highwater db bind")
assert not os.path.exists(plain)

db = sqlite3.connect(uri, uri=True)
db.execute("CREATE TABLE t(a)")
db.commit()
refused(lambda: db.execute("PRAGMA journal_mode=MEMORY"), "journal_mode", "stays in WAL mode")
refused(lambda: db.execute("PRAGMA locking_mode=EXCLUSIVE"), "locking_mode")
assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)

# A second process.
second = f"""
import sqlite3
loader = sqlite3.connect(":memory:")
loader.enable_load_extension(True)
loader.load_extension({library!r})
try:
    sqlite3.connect({uri!r}, uri=True)
except sqlite3.OperationalError as error:
    print(error)
"""
told = subprocess.run([sys.executable, "-c", second], capture_output=True, text=True).stdout
assert "busy" in told and f"process {os.getpid()}" in told, told

refused(lambda: db.execute("SELECT highwater_synced(?, 50)", [path]), "synced_timeout")
refused(lambda: db.execute("SELECT highwater_bind(?, 'nonsense')", [path + ".new"]), "url")
status = db.execute("SELECT highwater_status(?)", [path]).fetchone()[0]
assert '"commits"' in status, status
assert json.loads(status)["sqlite"]["version"] == sqlite3.sqlite_version, status
db.execute("INSERT INTO t VALUES (1)")
db.commit()
assert db.execute("SELECT count(*) FROM t").fetchone() == (1,)
db.close()
print("all told")
