// A Highwater server for the time of one run: a free port, a directory of its own, and an end for certain.

import { spawn } from "node:child_process"
import { once } from "node:events"
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs"
import http from "node:http"
import https from "node:https"
import { createServer } from "node:net"
import { join } from "node:path"
import { fileURLToPath } from "node:url"

const ROOT = fileURLToPath(new URL("..", import.meta.url))
/** Where cargo builds. */
export const TARGET = process.env.CARGO_TARGET_DIR ?? join(ROOT, "target")

/** The program under test, as cargo built it. */
export const HIGHWATER = join(TARGET, "debug", "highwater")

/** The Python whose environment holds `requirements.txt`. */
export const PYTHON = join(TARGET, "interop-venv", "bin", "python")

/** Milliseconds that a server may take to start or to end on a busy machine. */
const PATIENCE_MS = 30_000

const running = new Set()

/** Has `destroy` called when this program ends, however it does, until the returned function is called. */
export function atExit(destroy) {
  running.add(destroy)
  return () => running.delete(destroy)
}

process.on("exit", () => running.forEach((destroy) => destroy()))
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => process.exit(1))
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

/** Below the range from which the system draws ports for outgoing connections, so that a restart gets it back. */
async function freePort() {
  for (let port = 20_000 + ((process.pid * 37) % 12_000); ; port = 20_000 + ((port + 1 - 20_000) % 12_000)) {
    const probe = createServer()
    const free = await new Promise((resolve) => {
      probe.once("error", () => resolve(false))
      probe.listen(port, "127.0.0.1", () => resolve(true))
    })
    if (free) {
      await new Promise((resolve) => probe.close(resolve))
      return port
    }
  }
}

/** `highwater serve` on a port and a directory that it keeps through every restart. */
export class Server {
  /** A server that is ready. `options` are further words of its command line, `scheme` is `https` if they bring TLS. */
  static async start(options = [], scheme = "http") {
    const server = new Server(await freePort(), options, scheme)
    await server.restart()
    return server
  }

  constructor(port, options, scheme) {
    this.folder = mkdtempSync(join(TARGET, "interop-"))
    this.data = join(this.folder, "data")
    this.logPath = join(this.folder, "server.log")
    this.port = port
    this.baseUrl = `${scheme}://127.0.0.1:${port}`
    this.options = options
    this.forget = atExit(() => this.destroy())
  }

  url(path) {
    return `${this.baseUrl}/v1/stream/${path}`
  }

  get log() {
    return readFileSync(this.logPath, "utf8")
  }

  async restart() {
    const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("HIGHWATER_")))
    const log = openSync(this.logPath, "a")
    const words = ["serve", "--data", this.data, "--listen", `127.0.0.1:${this.port}`, ...this.options]
    this.process = spawn(HIGHWATER, words, { stdio: ["ignore", log, log], env: environment })
    closeSync(log)
    let failure
    this.process.once("error", (error) => (failure = error))
    const deadline = Date.now() + PATIENCE_MS
    while (Date.now() < deadline && failure === undefined && this.process.exitCode === null) {
      if (await this.#isReady()) {
        return
      }
      await sleep(50)
    }
    throw new Error(`the server did not become ready: ${failure ?? ""}\n${this.log}`)
  }

  /** Whether it says so; that it is itself is not checked here. */
  #isReady() {
    const get = this.baseUrl.startsWith("https") ? https.get : http.get
    return new Promise((resolve) => {
      const request = get(`${this.baseUrl}/readyz`, { rejectUnauthorized: false, agent: false }, (answer) => {
        answer.resume()
        resolve(answer.statusCode === 200)
      })
      request.on("error", () => resolve(false))
    })
  }

  /** Ends it with a signal and waits until it has ended. */
  async end(signal = "SIGTERM") {
    if (this.process.exitCode === null && this.process.signalCode === null) {
      const ended = once(this.process, "exit")
      this.process.kill(signal)
      const watchdog = setTimeout(() => this.process.kill("SIGKILL"), PATIENCE_MS)
      await ended
      clearTimeout(watchdog)
    }
  }

  /** Ends it and removes everything it kept. */
  async finish() {
    await this.end()
    this.destroy()
  }

  destroy() {
    this.process?.kill("SIGKILL")
    rmSync(this.folder, { recursive: true, force: true })
    this.forget()
  }
}
