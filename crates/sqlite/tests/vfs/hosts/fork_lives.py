"""A parent that is killed while a child it forked lives on. Arguments: library, database, its URI."""
import os, signal, sqlite3, sys

library, path, uri = sys.argv[1:4]
loader = sqlite3.connect(":memory:")
loader.enable_load_extension(True)
loader.load_extension(library)

ready, ready_child = os.pipe()
wait_child, done = os.pipe()
parent = os.fork()
if parent == 0:
    db = sqlite3.connect(uri, uri=True)
    db.execute("CREATE TABLE t(a)")
    db.execute("INSERT INTO t VALUES (1)")
    db.commit()
    if os.fork() == 0:
        os.close(done)
        try:
            db.execute("PRAGMA highwater_status").fetchone()
            os.write(ready_child, b"the inherited database has a status")
        except sqlite3.Error as error:
            os.write(ready_child, str(error).encode())
        os.read(wait_child, 1)
        os._exit(0)
    os.read(wait_child, 1)
os.close(wait_child)
said = os.read(ready, 200).decode()
assert "forked" in said, said

# While the parent lives it owns the database; once it is killed nobody does.
try:
    sqlite3.connect(uri, uri=True)
except sqlite3.OperationalError as error:
    assert f"process {parent}" in str(error), error
else:
    raise AssertionError("opened beside its owner")
os.kill(parent, signal.SIGKILL)
os.waitpid(parent, 0)
db = sqlite3.connect(uri, uri=True)
assert db.execute("SELECT a FROM t").fetchone() == (1,)
db.close()
os.close(done)
print("opened while the child lives")
