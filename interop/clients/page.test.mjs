// The examples of docs/how-to/clients.md, as a reader would run them.

import assert from "node:assert/strict"
import { spawn } from "node:child_process"
import { readFileSync } from "node:fs"
import { after, before, test } from "node:test"
import { fileURLToPath } from "node:url"
import { PYTHON, Server, atExit } from "../server.mjs"
import { SOON_MS } from "./bed.mjs"

const PAGE = fileURLToPath(new URL("../../docs/how-to/clients.md", import.meta.url))
const FOLDER = fileURLToPath(new URL("..", import.meta.url))

let server
before(async () => {
  server = await Server.start()
})
after(() => server.finish())

/** Runs a program that stands on standard input; its exit status and what it printed. */
function run(command, words, program) {
  return new Promise((resolve) => {
    const child = spawn(command, words, { cwd: FOLDER, stdio: "pipe" })
    const forget = atExit(() => child.kill("SIGKILL"))
    const watchdog = setTimeout(() => child.kill("SIGKILL"), SOON_MS)
    let said = ""
    child.stdout.on("data", (text) => (said += text))
    child.stderr.on("data", (text) => (said += text))
    child.on("close", (status) => {
      forget()
      clearTimeout(watchdog)
      resolve({ status, said })
    })
    child.stdin.end(program)
  })
}

const examples = [...readFileSync(PAGE, "utf8").matchAll(/^```(js|python)\n(.*?)^```$/gms)]

test("the page has examples", () => assert.ok(examples.length >= 3))

examples.forEach(([, language, text], number) => {
  test(`example ${number + 1} of the page, in ${language}, does what it says`, async () => {
    const program = text.replaceAll("http://127.0.0.1:4437", server.baseUrl)
    const [command, words] = language === "js" ? [process.execPath, ["--input-type=module", "-"]] : [PYTHON, ["-"]]
    const { status, said } = await run(command, words, program)
    assert.equal(status, 0, said)
    assert.doesNotMatch(said, /error/i)
    assert.match(said, /milk|celsius|disk/, "it printed what it found")
  })
})
