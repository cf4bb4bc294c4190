// The published client with keys: what it may, what it is refused, and how a reader ends when its key is revoked.

import assert from "node:assert/strict"
import { after, before, test } from "node:test"
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client"
import { Server, sleep } from "../server.mjs"
import { BACKOFF, administrator, assertNumbers, bearer, numbers, readAll, until } from "./bed.mjs"

let server
let admin
before(async () => {
  server = await Server.start()
  admin = await administrator(server)
})
after(() => server.finish())

/** Whether an error tells this status. */
const refused = (status) => (error) => error.status === status

const json = (path, key) => ({ url: server.url(path), contentType: "application/json", headers: bearer(key) })

test("a client without a key, or with one that was never made, is refused", async () => {
  await assert.rejects(DurableStream.create(json("team/none", admin.key.slice(0, -4) + "AAAA")), refused(401))
  await assert.rejects(DurableStream.create({ url: server.url("team/none"), contentType: "text/plain" }), refused(401))
  await assert.rejects(stream({ url: server.url("team/none"), live: false }), refused(401))
})

test("a key does what its scopes say below its prefixes, and nothing else", async () => {
  const writer = await admin.make({ scopes: ["create", "append", "read"], prefixes: ["team"] })
  const reader = await admin.make({ scopes: ["read"], prefixes: ["team"] })
  const written = await DurableStream.create(json("team/notes", writer.key))
  await Promise.all(numbers(0, 20).map((number) => written.append(number)))
  assertNumbers(await readAll(written), 20)
  const read = new DurableStream(json("team/notes", reader.key))
  assertNumbers(await readAll(read), 20)
  await assert.rejects(read.append("20"), refused(403))
  await assert.rejects(read.delete(), refused(403))
  await assert.rejects(DurableStream.create(json("other/notes", writer.key)), refused(403))
  assertNumbers(await readAll(read), 20)
})

test("a producer with a key has five batches in flight", async () => {
  const { key } = await admin.make({ scopes: ["create", "append", "read"], prefixes: ["team"] })
  const written = await DurableStream.create(json("team/produced", key))
  const errors = []
  const producer = new IdempotentProducer(written, "writer", {
    maxInFlight: 5,
    maxBatchBytes: 16,
    autoClaim: true,
    onError: (error) => errors.push(error),
  })
  numbers(0, 200).forEach((number) => producer.append(number))
  await producer.flush()
  assert.deepEqual(errors, [])
  assertNumbers(await readAll(written), 200)
})

for (const live of ["long-poll", "sse"]) {
  test(`a reader by ${live} ends soon after its key was revoked, and hears nothing more`, async () => {
    const path = `team/revoked-${live}`
    const written = await DurableStream.create(json(path, admin.key))
    const reader = await admin.make({ scopes: ["read"], prefixes: ["team"] })
    const response = await stream({ ...json(path, reader.key), live, offset: "-1", json: true, backoffOptions: BACKOFF })
    const got = []
    let failure
    response.subscribeJson((batch) => got.push(...batch.items))
    response.closed.catch((error) => (failure = error))
    await written.append("0")
    await until("the first message", () => got.length === 1)
    await admin.revoke(reader.id)
    await until("the reader to end", () => failure !== undefined)
    await written.append("1")
    await sleep(300)
    assert.deepEqual(got, [0])
    await assert.rejects(stream({ ...json(path, reader.key), live: false }), refused(401))
  })
}

test("an application that has a new key by then goes on with it", async () => {
  const written = await DurableStream.create(json("team/renewed", admin.key))
  const first = await admin.make({ scopes: ["read"] })
  const second = await admin.make({ scopes: ["read"] })
  let current = first.key
  const headers = { authorization: () => `Bearer ${current}` }
  const response = await stream({ ...json("team/renewed", ""), headers, live: "long-poll", offset: "-1", json: true })
  const got = []
  response.subscribeJson((batch) => got.push(...batch.items))
  await written.append("0")
  await until("the first message", () => got.length === 1)
  current = second.key
  // The request that waits now was asked with the first key; the next one brings the second.
  await written.append("1")
  await until("the second message", () => got.length === 2)
  await admin.revoke(first.id)
  await written.append("2")
  await until("the third message", () => got.length === 3)
  response.cancel()
})

test("keys hold after the server was killed and started again", async () => {
  const kept = await admin.make({ scopes: ["create", "append", "read"] })
  const gone = await admin.make({ scopes: ["read"] })
  const written = await DurableStream.create(json("team/kept", kept.key))
  await written.append("0")
  await admin.revoke(gone.id)
  await server.end("SIGKILL")
  await server.restart()
  assertNumbers(await readAll(written), 1)
  await assert.rejects(stream({ ...json("team/kept", gone.key), live: false }), refused(401))
  await assert.rejects(stream({ url: server.url("team/kept"), live: false }), refused(401))
})
