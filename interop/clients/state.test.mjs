// npm @durable-streams/state and its TanStack database: state made of a stream's events, alike for every reader.

import assert from "node:assert/strict"
import { after, before, test } from "node:test"
import { MaterializedState, createStateSchema } from "@durable-streams/state"
import { createStreamDB } from "@durable-streams/state/db"
import { Server } from "../server.mjs"
import { BACKOFF, create, readAll, until } from "./bed.mjs"

let server
before(async () => {
  server = await Server.start()
})
after(() => server.finish())

/** A validator of the Standard Schema that takes every object. */
const anything = {
  "~standard": {
    version: 1,
    vendor: "highwater",
    validate: (value) => (typeof value === "object" ? { value } : { issues: [{ message: "not an object" }] }),
  },
}

const schema = createStateSchema({
  users: { schema: anything, type: "user", primaryKey: "id" },
  posts: { schema: anything, type: "post", primaryKey: "id" },
})

const user = (id, name) => ({ id, name })

test("events of a stream become the same state again and again", async () => {
  const json = await create(server, "state/plain", "application/json")
  const events = [
    schema.users.insert({ value: user("1", "Ada") }),
    schema.users.insert({ value: user("2", "Bob") }),
    schema.users.update({ value: user("1", "Ada L.") }),
    schema.posts.insert({ value: { id: "p", by: "1" } }),
    schema.users.delete({ key: "2" }),
  ]
  for (const event of events) {
    await json.append(JSON.stringify(event))
  }
  const state = new MaterializedState()
  for (const event of await readAll(json)) {
    state.apply(event)
  }
  assert.deepEqual(state.get("user", "1"), user("1", "Ada L."))
  assert.equal(state.get("user", "2"), undefined)
  assert.deepEqual(state.get("post", "p"), { id: "p", by: "1" })
})

for (const live of ["long-poll", "sse"]) {
  test(`a database on a stream follows it by ${live}, and one opened later agrees`, async () => {
    const json = await create(server, `state/db-${live}`, "application/json")
    await json.append(JSON.stringify(schema.users.insert({ value: user("1", "Ada") })))
    const streamOptions = { url: json.url, contentType: "application/json", backoffOptions: BACKOFF }
    const db = createStreamDB({ streamOptions, live, state: schema })
    await db.preload()
    assert.equal(db.collections.users.get("1").name, "Ada")
    const txid = `tx-${live}`
    const renamed = schema.users.update({ value: user("1", "Ada L."), headers: { txid } })
    await json.append(JSON.stringify(schema.users.insert({ value: user("2", "Bob") })))
    await json.append(JSON.stringify(renamed))
    await db.utils.awaitTxId(txid, 20_000)
    assert.equal(db.collections.users.get("1").name, "Ada L.")
    await json.append(JSON.stringify(schema.users.delete({ key: "2" })))
    await until("the deletion to arrive", () => db.collections.users.get("2") === undefined)

    const later = createStreamDB({ streamOptions, live: false, state: schema })
    await later.preload()
    assert.equal(later.collections.users.size, 1)
    assert.equal(later.collections.users.get("1").name, "Ada L.")
    db.close()
    later.close()
  })
}

test("a database on a stream goes on after the server was killed and started again", async () => {
  const json = await create(server, "state/restart", "application/json")
  const streamOptions = { url: json.url, contentType: "application/json", backoffOptions: BACKOFF }
  const db = createStreamDB({ streamOptions, live: "long-poll", state: schema })
  await json.append(JSON.stringify(schema.users.insert({ value: user("1", "Ada") })))
  await db.preload()
  await server.end("SIGKILL")
  await server.restart()
  await json.append(JSON.stringify(schema.users.insert({ value: user("2", "Bob") })))
  await until("what came after the restart", () => db.collections.users.get("2") !== undefined)
  assert.equal(db.collections.users.size, 2)
  db.close()
})
