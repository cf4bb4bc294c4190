// The published client over TLS, with a key: the certificate is checked, changed while the server runs, and checked again.

import assert from "node:assert/strict"
import { execFileSync, spawn } from "node:child_process"
import { once } from "node:events"
import { copyFileSync, mkdtempSync, rmSync } from "node:fs"
import { join } from "node:path"
import { test } from "node:test"
import { fileURLToPath } from "node:url"
import { Server, TARGET, atExit } from "../server.mjs"
import { until } from "./bed.mjs"

/** A certificate for this machine's loopback address, and its key. */
function certificate(folder, name) {
  const [pem, key] = [join(folder, `${name}.pem`), join(folder, `${name}.key`)]
  const subject = ["-subj", "/CN=highwater", "-addext", "subjectAltName=IP:127.0.0.1"]
  const kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
  execFileSync("openssl", ["req", ...kind, ...subject, "-out", pem, "-keyout", key], { stdio: "ignore" })
  return { pem, key }
}

/** Runs the program that uses the client, trusting one certificate besides the system's; its exit status and words. */
async function use(server, pem, path) {
  const program = fileURLToPath(new URL("secure_client.mjs", import.meta.url))
  const environment = { ...process.env, NODE_EXTRA_CA_CERTS: pem }
  const client = spawn(process.execPath, [program, server.url(path)], { env: environment })
  const forget = atExit(() => client.kill("SIGKILL"))
  let said = ""
  client.stderr.on("data", (text) => (said += text))
  const [status] = await once(client, "close")
  forget()
  return { status, said }
}

test("a client over TLS checks the certificate, and goes on with a new one", async () => {
  const folder = mkdtempSync(join(TARGET, "interop-tls-"))
  const forget = atExit(() => rmSync(folder, { recursive: true, force: true }))
  const [old, next] = [certificate(folder, "old"), certificate(folder, "next")]
  const used = { pem: join(folder, "used.pem"), key: join(folder, "used.key") }
  const put = ({ pem, key }) => {
    copyFileSync(key, used.key)
    copyFileSync(pem, used.pem)
  }
  put(old)
  const server = await Server.start(["--tls-certificate", used.pem, "--tls-key", used.key], "https")
  try {
    const first = await use(server, old.pem, "secure/first")
    assert.equal(first.status, 0, first.said)
    const stranger = await use(server, next.pem, "secure/stranger")
    assert.notEqual(stranger.status, 0, "it believed a certificate that it does not know")
    put(next)
    server.process.kill("SIGHUP")
    let round = 0
    await until("the new certificate", async () => (await use(server, next.pem, `secure/next-${(round += 1)}`)).status === 0)
  } finally {
    await server.finish()
    rmSync(folder, { recursive: true, force: true })
    forget()
  }
})
