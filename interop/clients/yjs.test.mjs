// npm @durable-streams/y-durable-streams, both its parts: its server keeps documents as streams of this one, and two
// documents converge through it.

import assert from "node:assert/strict"
import { after, before, test } from "node:test"
import { YjsProvider } from "@durable-streams/y-durable-streams"
import { YjsServer } from "@durable-streams/y-durable-streams/server"
import { Awareness } from "y-protocols/awareness"
import * as Y from "yjs"
import { Server, sleep } from "../server.mjs"
import { until } from "./bed.mjs"

/** Bytes of updates after which the Yjs server makes a snapshot. */
const COMPACTION_BYTES = 4_096

let server
let yjs
const opened = []
before(async () => {
  server = await Server.start()
  yjs = new YjsServer({ port: 0, dsServerUrl: server.baseUrl, compactionThreshold: COMPACTION_BYTES })
  await yjs.start()
})
after(async () => {
  opened.forEach((provider) => provider.destroy())
  await yjs.stop()
  await server.finish()
})

/** A document that follows `docId`; its provider ends with the tests at the latest. */
async function open(docId, options = {}) {
  const doc = new Y.Doc()
  const provider = new YjsProvider({ doc, baseUrl: `${yjs.url}/v1/yjs/highwater`, docId, connect: false, ...options })
  opened.push(provider)
  await provider.connect()
  await until(`${docId} to be in step`, () => provider.synced)
  return { doc, provider, text: doc.getText("body"), map: doc.getMap("facts") }
}

/** Waits until both documents hold the same, and something. */
async function converge(a, b) {
  const same = () => {
    const [left, right] = [a, b].map(({ doc }) => Buffer.from(Y.encodeStateVector(doc)))
    return left.equals(right) && a.text.toString() === b.text.toString()
  }
  await until("the documents to converge", same)
  assert.deepEqual(a.map.toJSON(), b.map.toJSON())
}

for (const liveMode of ["sse", "long-poll"]) {
  test(`two documents converge by ${liveMode}, whoever writes`, async () => {
    const one = await open(`meeting/notes-${liveMode}`, { liveMode })
    const two = await open(`meeting/notes-${liveMode}`, { liveMode })
    one.text.insert(0, "agenda")
    two.map.set("place", "here")
    await converge(one, two)
    for (let round = 0; round < 20; round += 1) {
      one.text.insert(one.text.length, ` a${round}`)
      two.text.insert(0, `b${round} `)
    }
    await until("the writes to arrive", () => one.text.toString().includes("b19") && two.text.toString().includes("a19"))
    await converge(one, two)
  })
}

test("a document that was compacted opens as it was", async () => {
  const path = "long/document"
  const one = await open(path)
  for (let round = 0; round < 40; round += 1) {
    one.text.insert(one.text.length, `${round}: ${"words ".repeat(40)}`)
    await sleep(5)
  }
  const snapshot = `${yjs.url}/v1/yjs/highwater/docs/${path}?offset=snapshot`
  await until("a snapshot", async () => {
    const answer = await fetch(snapshot, { redirect: "manual" })
    return answer.headers.get("location")?.includes("_snapshot")
  })
  one.text.insert(0, "after the snapshot ")
  const two = await open(path)
  await converge(one, two)
})

// An edit that its provider could not send is not sent again by it, so none is made while the server is away.
test("documents go on together after the server was killed and started again", async () => {
  const one = await open("restart/document", { liveMode: "long-poll" })
  const two = await open("restart/document", { liveMode: "long-poll" })
  one.text.insert(0, "before ")
  await converge(one, two)
  await server.end("SIGKILL")
  await server.restart()
  for (const { provider } of [one, two]) {
    await provider.connect()
    await until("the provider to be back", () => provider.connected)
  }
  one.text.insert(one.text.length, "after ")
  two.text.insert(two.text.length, "too")
  const words = ["before", "after", "too"]
  await until("both to be whole", () =>
    [one, two].every(({ text }) => words.every((word) => text.toString().includes(word))),
  )
  await converge(one, two)
  const late = await open("restart/document")
  await converge(one, late)
})

test("one sees who else is there", async () => {
  const [here, there] = [new Y.Doc(), new Y.Doc()].map((doc) => new Awareness(doc))
  const one = await open("presence/document", { awareness: here })
  const two = await open("presence/document", { awareness: there })
  here.setLocalStateField("name", "Ada")
  await until("Ada to be seen", () => [...there.getStates().values()].some(({ name }) => name === "Ada"))
  here.destroy()
  there.destroy()
})
