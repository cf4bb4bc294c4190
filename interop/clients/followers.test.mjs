// npm @atproto/sync, which verifies every commit, through what an operator does: a lock, a lift, a restart, a restore.

import assert from "node:assert/strict"
import { execFile } from "node:child_process"
import { cpSync, rmSync } from "node:fs"
import { after, before, test } from "node:test"
import { promisify } from "node:util"
import { Firehose } from "@atproto/sync"
import { HIGHWATER } from "../server.mjs"
import { account, login, operate, resolver, start } from "./accounts.mjs"
import { until } from "./bed.mjs"

const NOTE = "com.example.note"

let server
before(async () => {
  server = await start()
})
after(() => server.finish())

/** Who follows one account from the stream's start; it keeps what it was handed, and comes back with its cursor. */
function follow(owner) {
  const seen = { events: [], errors: [], cursor: 0 }
  let line = Promise.resolve()
  const firehose = new Firehose({
    idResolver: resolver(server, owner),
    service: server.baseUrl.replace("http", "ws"),
    runner: { getCursor: () => seen.cursor, trackEvent: (_did, _seq, handle) => (line = line.then(handle)) },
    subscriptionReconnectDelay: 100,
    handleEvent: (event) => {
      seen.cursor = event.seq
      if (event.did === owner.did) {
        seen.events.push(event)
      }
    },
    // Others' frames are judged by this account's key, and a stopped server breaks connections: neither is counted.
    onError: (error) => (error.event?.repo ?? error.event?.did) === owner.did && seen.errors.push(error),
  })
  firehose.start()
  seen.kinds = (from = 0) => seen.events.slice(from).map(({ event }) => event)
  seen.holds = (text) => seen.events.some(({ record }) => record?.text === text)
  return { seen, stop: () => firehose.destroy() }
}

const write = (agent, text) =>
  agent.com.atproto.repo.createRecord({ repo: agent.session.did, collection: NOTE, record: { $type: NOTE, text } })

test("a follower hears of a lock and a lift, and of nothing at a restart", async () => {
  const owner = await account(server)
  const { seen, stop } = follow(owner)
  await until("the account", () => seen.kinds().includes("account"))
  const begun = seen.events.length
  await operate(server, "account", "lock", owner.did)
  await operate(server, "account", "lift", owner.did)
  await until("the state that the lift set", () => seen.kinds(begun).includes("sync"))
  assert.deepEqual(seen.kinds(begun), ["account", "account", "sync"])
  const told = seen.events.slice(begun, begun + 2).map(({ active, status }) => [active, status ?? null])
  assert.deepEqual(told, [[false, "suspended"], [true, null]])
  const before = seen.events.length
  await server.end()
  await server.restart()
  await write(await login(server, owner), "after the restart")
  await until("the write", () => seen.holds("after the restart"))
  assert.deepEqual(seen.kinds(before), ["create"])
  assert.deepEqual(seen.errors, [])
  await stop()
})

test("a follower that saw a lost run ends with the restored records", async () => {
  const owner = await account(server)
  const { seen, stop } = follow(owner)
  await write(await login(server, owner), "kept")
  await server.end()
  const copy = `${server.data}-copy`
  cpSync(server.data, copy, { recursive: true })
  await server.restart()
  await write(await login(server, owner), "lost")
  await until("the write that will be lost", () => seen.holds("lost"))
  await server.end()
  const before = seen.events.length
  rmSync(server.data, { recursive: true })
  cpSync(copy, server.data, { recursive: true })
  await promisify(execFile)(HIGHWATER, ["mark-restored", "--data", server.data])
  await server.restart()
  await until("the restored state", () => seen.kinds(before).includes("sync"))
  assert.deepEqual(seen.kinds(before), ["account", "sync"])
  const agent = await login(server, owner)
  const { data } = await agent.com.atproto.repo.listRecords({ repo: owner.did, collection: NOTE })
  assert.deepEqual(data.records.map(({ value }) => value.text), ["kept"])
  await write(agent, "after the restore")
  await until("the next write", () => seen.holds("after the restore"))
  assert.deepEqual(seen.errors, [])
  await stop()
})
