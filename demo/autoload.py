"""Loads the Highwater extension into this Python's SQLite, as its default VFS, when the interpreter starts.

A `.pth` file in the environment's site-packages imports this module; no line of the application changes. The library
stays loaded after the connection that loaded it is gone, and serves every later connection of the process.
"""

import os
import sqlite3


def load(library: str) -> None:
    connection = sqlite3.connect(":memory:")
    try:
        connection.enable_load_extension(True)
        connection.load_extension(library)
        connection.execute("SELECT highwater_default_vfs(1)")
    finally:
        connection.close()


if library := os.environ.get("HIGHWATER_EXTENSION"):
    load(library)
