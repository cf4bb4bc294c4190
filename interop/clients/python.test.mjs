// PyPI durable-streams: runs `python_client.py` and restarts the server when it asks for that.

import assert from "node:assert/strict"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { createInterface } from "node:readline"
import { test } from "node:test"
import { fileURLToPath } from "node:url"
import { PYTHON, Server, atExit } from "../server.mjs"

test("the Python client works through a restart of the server", async () => {
  const server = await Server.start()
  const program = fileURLToPath(new URL("python_client.py", import.meta.url))
  const python = spawn(PYTHON, ["-B", program, server.baseUrl], { stdio: "pipe" })
  const forget = atExit(() => python.kill("SIGKILL"))
  try {
    let said = ""
    python.stderr.on("data", (text) => (said += text))
    createInterface(python.stdout).on("line", async (line) => {
      if (line === "restart") {
        await server.end("SIGKILL")
        await server.restart()
        python.stdin.write("restarted\n")
      }
    })
    const [status] = await once(python, "close")
    assert.equal(status, 0, said)
    assert.match(said, /Ran \d+ tests/)
  } finally {
    forget()
    python.kill("SIGKILL")
    await server.finish()
  }
})
