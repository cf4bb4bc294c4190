#!/usr/bin/env python3
"""Measures Highwater beside other servers of streams, with the same requests, in turns, in one run.

    cargo build --release -p highwater-bench
    python3 bench/peers/run.py install --root ~/peers          # once; ursula takes half an hour of processor time
    python3 bench/peers/run.py measure --root ~/peers --seconds 5 --json peers.json

Every server runs alone with an empty directory on the same disk, in the order A B C C B A, each cell twice. How durable
an acknowledged append is stands beside its figures. Nothing here is part of the gate.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parents[2]
BENCH = HERE / "target/release/highwater-bench"

NODE_SERVER = """
const { DurableStreamTestServer } = require("@durable-streams/server");
const [port, dataDir] = process.argv.slice(2);
new DurableStreamTestServer({ port: Number(port), host: "127.0.0.1", dataDir }).start();
"""

URSULA_CONFIG = """
[server]
listen = "127.0.0.1:{port}"
[raft]
node_id = 1
group_count = 16
init_membership = true
snapshot_log_budget = "4GiB"
[[raft.peers]]
node_id = 1
url = "http://127.0.0.1:{port}"
[raft.wal]
backend = "disk"
path = "{data}"
fsync = "{fsync}"
[storage.cold]
backend = "none"
max_hot_size_per_group = "0"
"""


def quiet(command):
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def highwater(_root, data, _port):
    process = subprocess.Popen(
        [BENCH, "serve-child", data], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return process, process.stdout.readline().strip(), "/v1/stream/bench", "durable-streams"


def durable_streams(root, data, port):
    command = [root / "bin/durable-streams-server", "--port", str(port), "--data-dir", data]
    return quiet(command + ["--long-poll-timeout-ms", "500"]), None, "/v1/stream/bench", "durable-streams"


def ursula(fsync):
    def start(root, data, port):
        config = pathlib.Path(data) / "ursula.toml"
        config.write_text(URSULA_CONFIG.format(port=port, data=data, fsync=fsync))
        return quiet([root / "bin/ursula", "server", "--config", config]), None, "/bench", "durable-streams"

    return start


def s2_lite(root, data, port):
    init = pathlib.Path(data) / "init.json"
    init.write_text(json.dumps({"basins": [{"name": "benchbasin"}]}))
    command = [root / "bin/server", "--local-root", data, "--port", str(port), "--init-file", init]
    return quiet(command), None, "/v1/streams", "s2"


def node(root, data, port):
    script = root / "node/server.cjs"
    script.write_text(NODE_SERVER)
    return quiet(["node", script, str(port), data]), None, "/bench", "durable-streams"


# Name, program that must be there, durability of an acknowledged append, how it is started.
SERVERS = [
    ("highwater", BENCH, "fdatasync before every answer", highwater),
    ("durable-streams 0.1.5", "bin/durable-streams-server", "fdatasync before every answer (its default)", durable_streams),
    ("ursula 0.11.5, fsync always", "bin/ursula", "fsync before every answer", ursula("always")),
    ("ursula 0.11.5, fsync never", "bin/ursula", "page cache (its default)", ursula("never")),
    ("s2-lite 0.43.4", "bin/server", "fsync, batches of at most 5 ms", s2_lite),
    ("@durable-streams/server 0.3.7", "node/node_modules", "files and LMDB", node),
]


def install(arguments):
    root = arguments.root
    (root / "node").mkdir(parents=True, exist_ok=True)
    subprocess.run(["npm", "install", "--prefix", root / "node", "@durable-streams/server@0.3.7"], check=True)
    for crate, version, environment in [
        ("durable-streams", "0.1.5", {}),
        ("s2-lite", "0.43.4", {}),
        # It asks for a nightly compiler, and is content with the stable one.
        ("ursula", "0.11.5", {"RUSTC_BOOTSTRAP": "1"}),
    ]:
        command = ["cargo", "install", "--locked", "--root", root, crate, "--version", version]
        subprocess.run(command, check=True, env={**os.environ, **environment})


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(address, process):
    host, port = address.rsplit(":", 1)
    for _ in range(300):
        if process.poll() is not None:
            sys.exit(f"the server ended with {process.returncode} before it listened")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    sys.exit("the server does not listen")


def once(server, arguments):
    """One server, started anew: its figures by cell."""
    name, _, _, start = server
    data = tempfile.mkdtemp(prefix="peers-", dir=arguments.directory)
    port = free_port()
    process, address, prefix, dialect = start(arguments.root, data, port)
    address = address or f"127.0.0.1:{port}"
    try:
        wait_for(address, process)
        time.sleep(1)
        command = [BENCH, "against", "--address", address, "--dialect", dialect, "--prefix", prefix]
        command += ["--pid", str(process.pid), "--seconds", str(arguments.seconds)]
        command += [part for only in arguments.only for part in ("--only", only)]
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        return [json.loads(line) for line in output.splitlines()]
    finally:
        print(f"{name} measured", file=sys.stderr)
        process.send_signal(signal.SIGKILL)
        process.wait()
        shutil.rmtree(data, ignore_errors=True)


def measure(arguments):
    there = [s for s in SERVERS if (arguments.root / s[1]).exists() and any(n in s[0] for n in arguments.servers)]
    print("servers: " + ", ".join(server[0] for server in there), file=sys.stderr)
    found = {}
    for server in there + there[::-1]:
        for cell in once(server, arguments):
            of_cell = found.setdefault(cell["name"], {}).setdefault(server[0], {"failed": None, "rows": {}})
            of_cell["failed"] = of_cell["failed"] or cell["failed"]
            for row in cell["rows"]:
                of_cell["rows"].setdefault((row["what"], row["unit"]), []).append(row["value"])
    durability = {server[0]: server[2] for server in there}
    document = []
    for cell, servers in found.items():
        print(f"\n## {cell}\n")
        for name, figures in servers.items():
            rows = [
                {"what": what, "unit": unit, "runs": runs, "mean": statistics.mean(runs)}
                for (what, unit), runs in figures["rows"].items()
            ]
            document.append({"cell": cell, "server": name, "durability": durability[name], **figures, "rows": rows})
            said = "; ".join(f"{row['what']} {row['mean']:.1f} {row['unit']}".strip() for row in rows)
            print(f"- **{name}** ({durability[name]}): {figures['failed'] or said}")
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["install", "measure"])
    parser.add_argument("--root", type=pathlib.Path, required=True, help="where the others are installed")
    parser.add_argument("--seconds", type=int, default=5, help="for each measurement")
    parser.add_argument("--only", action="append", default=[], help="only cells whose name contains this")
    parser.add_argument("--servers", action="append", default=[], help="only servers whose name contains this")
    parser.add_argument("--directory", help="a directory on the disk to measure")
    parser.add_argument("--json", type=pathlib.Path, help="where the figures go, besides standard output")
    arguments = parser.parse_args()
    arguments.root = arguments.root.resolve()
    arguments.servers = arguments.servers or [""]
    install(arguments) if arguments.what == "install" else measure(arguments)


if __name__ == "__main__":
    main()
