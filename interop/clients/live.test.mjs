// npm @durable-streams/client: readers that wait, by long-poll and by server-sent events, through restarts.

import assert from "node:assert/strict"
import { after, before, test } from "node:test"
import { stream } from "@durable-streams/client"
import { Server, sleep } from "../server.mjs"
import { BACKOFF, Lines, assertNumbers, create, numbers, until } from "./bed.mjs"

let server
before(async () => {
  server = await Server.start()
})
after(() => server.finish())

const MODES = ["long-poll", "sse"]

/**
 * A waiting reader of a JSON stream: what it got so far, and where it stands. A connection that breaks off in the middle
 * of an event ends the client's session with an error; as an application must, it then goes on from its offset.
 */
async function follow(url, live, offset = "-1") {
  const ending = new AbortController()
  const reader = { got: [], offset, ended: false, sessions: 0, end: () => ending.abort() }
  const begin = async () => {
    reader.sessions += 1
    const options = { url, live, offset: reader.offset, json: true, signal: ending.signal, backoffOptions: BACKOFF }
    const response = await stream(options)
    response.subscribeJson((batch) => {
      reader.got.push(...batch.items)
      reader.offset = batch.offset
    })
    response.closed.then(
      () => {
        reader.ended = true
        reader.streamClosed = response.streamClosed
      },
      () => ending.signal.aborted || begin(),
    )
  }
  await begin()
  return reader
}

for (const live of MODES) {
  test(`a reader by ${live} gets what was there and what comes, in order`, async () => {
    const path = `live/order-${live}`
    const json = await create(server, path, "application/json")
    await Promise.all(numbers(0, 20).map((number) => json.append(number)))
    const reader = await follow(server.url(path), live)
    for (const number of numbers(20, 30)) {
      await json.append(number)
    }
    await until("the reader to have everything", () => reader.got.length >= 50)
    assertNumbers(reader.got, 50)
    reader.end()
  })

  test(`a reader by ${live} that goes on from its offset misses nothing and gets nothing twice`, async () => {
    const path = `live/resume-${live}`
    const json = await create(server, path, "application/json")
    await Promise.all(numbers(0, 10).map((number) => json.append(number)))
    const first = await follow(server.url(path), live)
    await until("the first reader", () => first.got.length >= 10)
    first.end()
    await Promise.all(numbers(10, 10).map((number) => json.append(number)))
    const second = await follow(server.url(path), live, first.offset)
    await until("the second reader", () => second.got.length >= 10)
    assert.deepEqual([...first.got, ...second.got], numbers(0, 20).map(Number))
    second.end()
  })

  test(`a reader by ${live} ends when the stream is closed, with its last message`, async () => {
    const path = `live/closing-${live}`
    const json = await create(server, path, "application/json")
    const reader = await follow(server.url(path), live)
    await json.append("1")
    await until("the first message", () => reader.got.length === 1)
    await json.close({ body: "2" })
    await until("the reader to end", () => reader.ended && reader.got.length === 2)
    assert.deepEqual(reader.got, [1, 2])
    assert.equal(reader.streamClosed, true)
  })

  test(`a reader by ${live} goes on through two restarts of the server`, async () => {
    const path = `live/restart-${live}`
    const json = await create(server, path, "application/json")
    const reader = await follow(server.url(path), live)
    let next = 0
    for (const signal of ["SIGKILL", "SIGTERM"]) {
      await Promise.all(numbers(next, 20).map((number) => json.append(number)))
      await server.end(signal)
      await server.restart()
      await Promise.all(numbers(next + 20, 20).map((number) => json.append(number)))
      next += 40
    }
    await until("the reader to have everything", () => reader.got.length >= next)
    // Long enough for a message that is sent twice.
    await sleep(300)
    assertNumbers(reader.got, next)
    reader.end()
  })

  test(`a reader by ${live} at the tail gets only what comes`, async () => {
    const path = `live/now-${live}`
    const json = await create(server, path, "application/json")
    await json.append(JSON.stringify("before"))
    const reader = await follow(server.url(path), live, "now")
    await json.append(JSON.stringify("after"))
    await until("the message", () => reader.got.length > 0)
    assert.deepEqual(reader.got, ["after"])
    reader.end()
  })
}

test("text with every kind of line end comes through server-sent events in whole lines", async () => {
  const text = await create(server, "live/lines", "text/plain")
  const response = await stream({ url: server.url("live/lines"), live: "sse", offset: "-1" })
  const lines = new Lines()
  response.subscribeText((chunk) => lines.take(chunk.text))
  const sent = ["one", " two with a space before", "data: three", "", "event: control", "fünf", "🙂"]
  // An event shows every kind of line end as one; a pair of them that two appends share is one, too.
  const appended = [...sent.map((line) => `${line}\n`), "carriage\rreturn\r\n", "and a pair\r", "\nof two\n"]
  for (const part of appended) {
    await text.append(part)
  }
  const expected = [...sent, "carriage", "return", "and a pair", "of two"]
  await until("every line", () => lines.all.length >= expected.length)
  assert.deepEqual(lines.all, expected)
  response.cancel()
})

test("bytes come through server-sent events as they were", async () => {
  const bytes = await create(server, "live/bytes", "application/octet-stream")
  const response = await stream({ url: server.url("live/bytes"), live: "sse", offset: "-1" })
  const got = []
  response.subscribeBytes((chunk) => got.push(...chunk.data))
  const sent = Array.from({ length: 3 }, (_, part) => Uint8Array.from({ length: 1000 }, (_, i) => (i * 7 + part) % 256))
  for (const part of sent) {
    await bytes.append(part)
  }
  await until("every byte", () => got.length >= 3000)
  assert.deepEqual(got, sent.flatMap((part) => [...part]))
  response.cancel()
})
