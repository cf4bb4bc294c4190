// npm @durable-streams/client's IdempotentProducer: five batches in flight, claims, and a server that is killed under it.

import assert from "node:assert/strict"
import { after, before, test } from "node:test"
import { DurableStream, IdempotentProducer, StaleEpochError } from "@durable-streams/client"
import { Server, sleep } from "../server.mjs"
import { assertNumbers, create, numbers, patientFetch, readAll, until } from "./bed.mjs"

let server
before(async () => {
  server = await Server.start()
})
after(() => server.finish())

/** A producer with five small batches in flight, and what it complained of. */
function producer(stream, id, options = {}) {
  const errors = []
  const made = new IdempotentProducer(stream, id, {
    maxInFlight: 5,
    maxBatchBytes: 16,
    lingerMs: 1,
    fetch: patientFetch,
    onError: (error) => errors.push(error),
    ...options,
  })
  return { made, errors }
}

for (const autoClaim of [false, true]) {
  test(`five batches in flight arrive once and in order, autoClaim ${autoClaim}`, async () => {
    const json = await create(server, `producer/pipelined-${autoClaim}`, "application/json")
    const { made, errors } = producer(json, "writer", { autoClaim })
    let inFlightMax = 0
    for (const number of numbers(0, 500)) {
      made.append(number)
      inFlightMax = Math.max(inFlightMax, made.inFlightCount)
    }
    await made.flush()
    assert.deepEqual(errors, [])
    assertNumbers(await readAll(json), 500)
    assert.ok(autoClaim || inFlightMax >= 5, `only ${inFlightMax} in flight`)
    assert.equal(made.lastSuccessfulOffset, (await json.head()).offset)
  })
}

test("a restarted producer that claims takes the stream over, and the one before it is told", async () => {
  const json = await create(server, "producer/claim", "application/json")
  const first = producer(json, "writer")
  first.made.append("1")
  await first.made.flush()
  // The same program started again knows nothing of its epoch or sequence; its first batch may not pass for the other's.
  const second = producer(json, "writer", { autoClaim: true, epoch: 1 })
  second.made.append("2")
  await second.made.flush()
  assert.deepEqual(second.errors, [])
  first.made.append("lost")
  await first.made.flush().catch(() => {})
  assert.ok(first.errors[0] instanceof StaleEpochError, String(first.errors[0]))
  assert.equal(first.errors[0].currentEpoch, second.made.epoch)
  const third = producer(json, "writer", { autoClaim: true })
  third.made.append("3")
  await third.made.flush()
  assert.deepEqual(third.errors, [])
  assert.ok(third.made.epoch > second.made.epoch)
  assert.deepEqual(await readAll(json), [1, 2, 3])
})

// The protocol answers 400 to a new epoch that does not begin with its first number, and the client gives up at that. Of
// five batches in flight a later one may arrive first, so the first of an epoch is sent alone.
test("a producer that goes up by an epoch of its own goes on", async () => {
  const json = await create(server, "producer/epochs", "application/json")
  const { made, errors } = producer(json, "writer")
  for (const round of [0, 10, 20]) {
    made.append(String(round))
    await made.flush()
    numbers(round + 1, 9).forEach((number) => made.append(number))
    await made.restart()
  }
  assert.deepEqual(errors, [])
  assertNumbers(await readAll(json), 30)
})

test("a producer that closes its stream does so once, with its last message, across a restart of the server", async () => {
  const json = await create(server, "producer/close", "application/json")
  const { made, errors } = producer(json, "writer")
  made.append("1")
  const { finalOffset } = await made.close("2")
  await server.end("SIGKILL")
  await server.restart()
  const repeat = await fetch(json.url, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      "producer-id": "writer",
      "producer-epoch": "0",
      "producer-seq": String(made.nextSeq - 1),
      "stream-closed": "true",
    },
    body: "[2]",
  })
  assert.equal(repeat.status, 204)
  assert.deepEqual(errors, [])
  assert.deepEqual(await readAll(json), [1, 2])
  const head = await json.head()
  assert.equal(head.streamClosed, true)
  assert.equal(head.offset, finalOffset)
})

test("a server killed three times under five batches in flight loses nothing and takes nothing twice", async () => {
  const json = await create(server, "producer/killed", "application/json")
  const { made, errors } = producer(json, "writer")
  let sent = 0
  let writing = true
  const writer = (async () => {
    while (writing) {
      numbers(sent, 10).forEach((number) => made.append(number))
      sent += 10
      await until("room for more", () => made.inFlightCount < 20)
      await sleep(1)
    }
    await made.flush()
  })()
  for (let round = 0; round < 3; round += 1) {
    const before = sent
    await until("the writer to be in full swing", () => sent >= before + 200)
    await server.end("SIGKILL")
    await sleep(50)
    await server.restart()
  }
  writing = false
  await writer
  assert.deepEqual(errors, [])
  assertNumbers(await readAll(json), sent)
})

test("several producers on one stream keep their own order", async () => {
  const json = await create(server, "producer/several", "application/json")
  const writers = numbers(0, 4).map((id) => producer(json, `writer-${id}`))
  for (let number = 0; number < 50; number += 1) {
    writers.forEach(({ made }, id) => made.append(JSON.stringify([id, number])))
  }
  await Promise.all(writers.map(({ made }) => made.flush()))
  const read = await readAll(json)
  writers.forEach(({ errors }, id) => {
    assert.deepEqual(errors, [])
    const own = read.filter(([writer]) => writer === id).map(([, number]) => number)
    assertNumbers(own, 50)
  })
  assert.equal(read.length, 200)
})

test("a stream written through a WritableStream is whole", async () => {
  const text = await create(server, "producer/writable", "text/plain")
  const writer = text.writable({ lingerMs: 1 }).getWriter()
  for (const number of numbers(0, 100)) {
    await writer.write(`${number}\n`)
  }
  await writer.close()
  const handle = new DurableStream({ url: text.url })
  const read = await (await handle.stream({ live: false })).text()
  assert.equal(read, numbers(0, 100).map((number) => `${number}\n`).join(""))
})
