// Accounts of the AT Protocol for the programs of this folder: a server with a zone, accounts on it, and who is logged in.
//
// Names are looked up by a stub that asks the server itself: nobody resolves a zone on this machine.

import assert from "node:assert/strict"
import { execFile } from "node:child_process"
import http from "node:http"
import { promisify } from "node:util"
import { AtpAgent } from "@atproto/api"
import { HIGHWATER, Server } from "../server.mjs"
import { administrator } from "./bed.mjs"

const ZONE = "pds.example.com"

/** A server with a zone, as in production: names with a port are more than some clients read. */
export async function start() {
  const server = await Server.start()
  server.key = (await administrator(server)).key
  await server.end()
  server.options = ["--pds-zone", ZONE]
  await server.restart()
  return server
}

/** What `highwater pds …` prints as JSON. */
export async function operate(server, ...words) {
  const env = { ...process.env, HIGHWATER_TOKEN: server.key }
  const { stdout } = await promisify(execFile)(HIGHWATER, ["pds", ...words, "--url", server.baseUrl, "--json"], { env })
  return JSON.parse(stdout)
}

/** An account that the operator makes: its names, its password, and its DID document as the server gives it. */
export async function account(server) {
  const { did, handle, password } = await operate(server, "account", "create")
  const document = await get(server, "/.well-known/did.json", did.slice("did:web:".length))
  assert.equal((await get(server, "/.well-known/atproto-did", handle)).toString(), did)
  return { did, handle, password, document, key: `did:key:${document.verificationMethod[0].publicKeyMultibase}` }
}

/** What the server answers under another host's name. */
function get(server, path, host) {
  return new Promise((resolve, reject) => {
    const request = http.get(server.baseUrl + path, { headers: { host } }, (answer) => {
      let text = ""
      answer.on("data", (part) => (text += part))
      answer.on("end", () => {
        assert.equal(answer.statusCode, 200, `${host}${path}: ${text}`)
        resolve(answer.headers["content-type"].startsWith("application/json") ? JSON.parse(text) : text)
      })
    })
    request.on("error", reject)
  })
}

/** An agent that is logged in. */
export async function login(server, { handle, password }) {
  // The session says where the account's server is, which only the zone's name service would know.
  const here = (url) => url.replace(`https://${ZONE}`, server.baseUrl)
  const fetchHere = async (request, options) => {
    if (!(request instanceof Request)) {
      return fetch(here(String(request)), options)
    }
    const { method, headers } = request
    const body = method === "POST" ? await request.arrayBuffer() : undefined
    return fetch(here(request.url), { method, headers, body })
  }
  const agent = new AtpAgent({ service: server.baseUrl, fetch: fetchHere })
  await agent.login({ identifier: handle, password })
  return agent
}

/** Answers about names from what the server said, for libraries that look them up. */
export function resolver(server, { did, handle, document, key }) {
  const data = { did, handle, signingKey: key, pds: server.baseUrl }
  return {
    did: { resolve: async () => document, resolveAtprotoData: async () => data, resolveAtprotoKey: async () => key },
    handle: { resolve: async () => did },
  }
}
