"""Runs statements that arrive as JSON lines, and answers each with a JSON line.

    session.py LIBRARY MODULE

MODULE is `sqlite3` or `apsw`; each has an SQLite of its own. The extension is loaded once, on a connection in memory.
"""

import json
import sys
import time

library, module = sys.argv[1:3]


def connect(uri: str):
    if module == "apsw":
        import apsw

        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        return apsw.Connection(uri, flags=flags)
    import sqlite3

    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=0)


def version() -> str:
    if module == "apsw":
        import apsw

        return apsw.sqlite_lib_version()
    import sqlite3

    return sqlite3.sqlite_version


def error_name(error: Exception) -> str:
    if module == "apsw":
        import apsw

        code = getattr(error, "extendedresult", None)
        return apsw.mapping_extended_result_codes.get(code) or apsw.mapping_result_codes.get(code, "")
    return getattr(error, "sqlite_errorname", "")


def load() -> None:
    loader = connect(":memory:")
    loader.enable_load_extension(True)
    loader.load_extension(library)
    loader.close()


def perform(request: dict, connections: dict) -> dict:
    what, name = request["do"], request["connection"]
    if what == "open":
        connection = connect(request["uri"])
        try:
            # SQLite reads the file with the first statement that needs it.
            connection.execute("PRAGMA schema_version").fetchall()
        except Exception:
            connection.close()
            raise
        connections[name] = connection
        return {}
    begun = time.monotonic()
    rows = [list(row) for row in connections[name].execute(request["sql"])]
    return {"rows": rows, "seconds": time.monotonic() - begun}


def main() -> None:
    load()
    print(json.dumps({"sqlite": version()}), flush=True)
    connections: dict = {}
    for line in sys.stdin:
        try:
            answer = perform(json.loads(line), connections)
        except Exception as error:  # whatever SQLite raised is the answer
            answer = {"error": str(error), "name": error_name(error)}
        print(json.dumps(answer, default=lambda value: value.hex()), flush=True)
    for connection in connections.values():
        connection.close()


main()
