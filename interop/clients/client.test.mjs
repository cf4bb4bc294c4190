// npm @durable-streams/client: create, append, read, resume, close, expire, and what each refusal becomes.

import assert from "node:assert/strict"
import { after, before, test } from "node:test"
import { DurableStream, DurableStreamError, FetchError, stream } from "@durable-streams/client"
import { Server } from "../server.mjs"
import { assertNumbers, create, numbers, readAll, until } from "./bed.mjs"

let server
before(async () => {
  server = await Server.start()
})
after(() => server.finish())

/** Whether an error is the client's own, with this status. */
const refused = (status) => (error) =>
  (error instanceof FetchError || error instanceof DurableStreamError) && error.status === status

test("text is appended and read back whole and from an offset", async () => {
  const text = await create(server, "client/text", "text/plain")
  await text.append("first ")
  const middle = (await text.head()).offset
  await text.append("second")
  const whole = await text.stream({ live: false })
  assert.equal(whole.contentType, "text/plain")
  assert.equal(await whole.text(), "first second")
  assert.equal(whole.upToDate, true)
  const rest = await text.stream({ offset: middle, live: false })
  assert.equal(await rest.text(), "second")
  assert.equal(rest.offset, (await text.head()).offset)
})

test("bytes come back as they were, whatever they are", async () => {
  const bytes = await create(server, "client/bytes", "application/octet-stream")
  const sent = Uint8Array.from({ length: 70_000 }, (_, index) => (index * 31) % 256)
  await bytes.append(sent.slice(0, 1))
  await bytes.append(sent.slice(1))
  const response = await bytes.stream({ live: false })
  assert.deepEqual(await response.body(), sent)
})

test("a body of several pieces is one append", async () => {
  const text = await create(server, "client/pieces", "text/plain")
  async function* pieces() {
    yield* ["one ", "two ", "three"]
  }
  await text.appendStream(pieces())
  assert.equal(await (await text.stream({ live: false })).text(), "one two three")
})

test("a first body arrives with the creation", async () => {
  const text = await create(server, "client/first", "text/plain", { body: "hello" })
  assert.equal(await (await text.stream({ live: false })).text(), "hello")
})

test("JSON messages keep their boundaries, their order and their numbers", async () => {
  const json = await create(server, "client/json", "application/json")
  const messages = [{ a: 1 }, [1, 2], "text\nwith lines", 0.1, null, true, { deep: { er: [{}] } }]
  await Promise.all(messages.map((message) => json.append(JSON.stringify(message))))
  assert.deepEqual(await readAll(json), messages)
  const tail = (await json.head()).offset
  assert.deepEqual(await readAll(json, tail), [])
  await json.append(JSON.stringify("later"))
  assert.deepEqual(await readAll(json, tail), ["later"])
})

test("many concurrent appends without batching are all there once", async () => {
  const json = await create(server, "client/many", "application/json", { batching: false })
  await Promise.all(numbers(0, 200).map((number) => json.append(number)))
  const read = await readAll(json)
  assertNumbers(read.toSorted((a, b) => a - b), 200)
})

test("a handle learns a stream's type and end without creating it", async () => {
  await create(server, "client/known", "application/json; charset=utf-8")
  const known = await DurableStream.connect({ url: server.url("client/known") })
  const head = await known.head()
  assert.equal(head.exists, true)
  assert.match(head.contentType, /^application\/json/)
  assert.equal(head.streamClosed, false)
  await known.append(JSON.stringify({ from: "another" }))
  assert.deepEqual(await readAll(known), [{ from: "another" }])
})

test("a closed stream stays readable, says so, and refuses appends for good", async () => {
  const json = await create(server, "client/closed", "application/json")
  await json.append("1")
  const { finalOffset } = await json.close({ body: "2" })
  const response = await json.stream({ live: true })
  assert.deepEqual(await response.json(), [1, 2])
  assert.equal(response.streamClosed, true)
  assert.equal((await json.head()).streamClosed, true)
  await assert.rejects(json.append("3"), refused(409))
  assert.equal((await json.close()).finalOffset, finalOffset)
})

test("a stream is created closed, with its content", async () => {
  const text = await create(server, "client/born-closed", "text/plain", { body: "all of it", closed: true })
  const response = await text.stream({ live: true })
  assert.equal(await response.text(), "all of it")
  assert.equal(response.streamClosed, true)
})

test("a stream that is not read expires, and a new one at its place is clean", async () => {
  const url = server.url("client/short")
  await DurableStream.create({ url, contentType: "text/plain", ttlSeconds: 1, body: "old" })
  await until("the stream to expire", async () => (await DurableStream.head({ url })).exists === false)
  await assert.rejects(stream({ url, live: false }), refused(404))
  const again = await DurableStream.create({ url, contentType: "text/plain", body: "new" })
  assert.equal(await (await again.stream({ live: false })).text(), "new")
})

test("a stream ends at the moment it was created to end", async () => {
  const url = server.url("client/until")
  const expiresAt = new Date(Date.now() + 1_000).toISOString()
  await DurableStream.create({ url, contentType: "text/plain", expiresAt, body: "old" })
  await until("the stream to expire", async () => (await DurableStream.head({ url })).exists === false)
})

test("every refusal is the client's own error", async () => {
  const url = server.url("client/refused")
  await assert.rejects(stream({ url, live: false }), refused(404))
  await assert.rejects(DurableStream.delete({ url }), refused(404))
  const text = await create(server, "client/refused", "text/plain")
  await assert.rejects(create(server, "client/refused", "application/json"), refused(409))
  await create(server, "client/refused", "text/plain")
  await text.append("a", { seq: "2" })
  await assert.rejects(text.append("b", { seq: "1" }), refused(409))
  await assert.rejects(stream({ url, offset: "nonsense", live: false }), refused(400))
  await text.delete()
  assert.equal((await DurableStream.head({ url })).exists, false)
})

test("what was acknowledged is there after the server was killed and started again", async () => {
  const json = await create(server, "client/kept", "application/json")
  await Promise.all(numbers(0, 50).map((number) => json.append(number)))
  const etag = (await json.head()).etag
  await server.end("SIGKILL")
  await server.restart()
  assertNumbers(await readAll(json), 50)
  assert.equal((await json.head()).etag, etag)
})
