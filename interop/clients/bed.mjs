// What the programs of this folder share. Each runs the published packages as they are against a server of its own.

import assert from "node:assert/strict"
import { DurableStream } from "@durable-streams/client"
import { sleep } from "../server.mjs"

/** Milliseconds that anything which must happen may take on a busy machine. */
export const SOON_MS = 30_000

/** A retry soon after a failure, so that a restart of the server costs a test no more than that. */
export const BACKOFF = { initialDelay: 20, maxDelay: 200, multiplier: 1.5 }

/** Numbers as texts: `count` of them from `first` on. */
export const numbers = (first, count) => Array.from({ length: count }, (_, index) => String(first + index))

/** A stream at `path` with the options of the client's `create`. */
export function create(server, path, contentType, options = {}) {
  return DurableStream.create({ url: server.url(path), contentType, warnOnHttp: false, ...options })
}

/** Looks again and again until `found` answers something true; fails with `what` if it never does. */
export async function until(what, found) {
  const deadline = Date.now() + SOON_MS
  for (;;) {
    const value = await found()
    if (value) {
      return value
    }
    if (Date.now() > deadline) {
      throw new Error(`waited in vain for ${what}`)
    }
    await sleep(20)
  }
}

/** `fetch` that tries again while there is no answer or one of 5xx, as an application puts it under a producer. */
export async function patientFetch(url, options) {
  const deadline = Date.now() + SOON_MS
  for (;;) {
    const answer = await fetch(url, options).catch((error) => error)
    if (answer instanceof Response && answer.status < 500) {
      return answer
    }
    if (Date.now() > deadline) {
      throw answer
    }
    await sleep(20)
  }
}

/** Every message of a JSON stream as far as it goes now, or from `offset` on. */
export async function readAll(stream, offset = "-1") {
  const response = await stream.stream({ offset, live: false })
  return response.json()
}

/** The lines of a text as they arrive in pieces. */
export class Lines {
  #rest = ""
  all = []

  take(text) {
    const parts = (this.#rest + text).split("\n")
    this.#rest = parts.pop()
    this.all.push(...parts)
  }
}

/** That `read` is the numbers from 0 to `count`, each once and in order; says where it goes wrong, not all of it. */
export function assertNumbers(read, count) {
  const wrong = read.findIndex((number, index) => number !== index)
  assert.equal(wrong, -1, `message ${wrong} of ${read.length} is ${JSON.stringify(read[wrong])}`)
  assert.equal(read.length, count, `${read.length} messages of ${count} are there`)
}

/** What a client sends to use a key. */
export const bearer = (key) => ({ authorization: `Bearer ${key}` })

/** Closes an open server with its first key, and manages further ones with it. */
export async function administrator(server) {
  const ask = async (method, path, key, body) => {
    const headers = { "content-type": "application/json", ...(key === undefined ? {} : bearer(key)) }
    const answer = await fetch(`${server.baseUrl}${path}`, { method, headers, body: body && JSON.stringify(body) })
    assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${await answer.clone().text()}`)
    return answer.json()
  }
  const { key } = await ask("POST", "/v1/keys", undefined, { scopes: ["admin"] })
  return {
    key,
    make: (settings) => ask("POST", "/v1/keys", key, settings),
    revoke: (id) => ask("DELETE", `/v1/keys/${id}`, key),
  }
}
