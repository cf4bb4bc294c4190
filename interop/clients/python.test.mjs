// PyPI durable-streams: runs `python_client.py` and restarts the server when it asks for that.

import assert from "node:assert/strict"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { createInterface } from "node:readline"
import { test } from "node:test"
import { fileURLToPath } from "node:url"
import { PYTHON, Server, atExit } from "../server.mjs"
import { administrator } from "./bed.mjs"

test("the Python client works, with a key and without, and through a restart of the server", async () => {
  const [server, keyed] = [await Server.start(), await Server.start()]
  const program = fileURLToPath(new URL("python_client.py", import.meta.url))
  const python = spawn(PYTHON, ["-B", program, server.baseUrl], { stdio: "pipe" })
  const forget = atExit(() => python.kill("SIGKILL"))
  const answers = {
    restart: async () => {
      await server.end("SIGKILL")
      await server.restart()
      return "restarted"
    },
    keyed: async () => `${keyed.baseUrl} ${(await administrator(keyed)).key}`,
  }
  try {
    let said = ""
    python.stderr.on("data", (text) => (said += text))
    createInterface(python.stdout).on("line", async (line) => python.stdin.write(`${await answers[line]()}\n`))
    const [status] = await once(python, "close")
    assert.equal(status, 0, said)
    assert.match(said, /Ran \d+ tests/)
  } finally {
    forget()
    python.kill("SIGKILL")
    await Promise.all([server.finish(), keyed.finish()])
  }
})
