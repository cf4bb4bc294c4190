// Accounts of the AT Protocol, used through the published clients as they are, against a server of this run.

import assert from "node:assert/strict"
import { execFile } from "node:child_process"
import { after, before, test } from "node:test"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { ComAtprotoSyncSubscribeRepos } from "@atcute/atproto"
import { FirehoseSubscription } from "@atcute/firehose"
import { verifyProofs, verifyRepoCar } from "@atproto/repo"
import { Firehose, MemoryRunner } from "@atproto/sync"
import { WebSocket } from "ws"
import { PYTHON } from "../server.mjs"
import { account, login, resolver, start } from "./accounts.mjs"
import { until } from "./bed.mjs"

const POST = "app.bsky.feed.post"
const PROFILE = "app.bsky.actor.profile"
const createdAt = "2026-01-01T00:00:00.000Z"

// Nodes below 22 have none of their own.
globalThis.WebSocket ??= WebSocket

let server
before(async () => {
  server = await start()
})
after(() => server.finish())

test("an agent logs in, writes, reads, and is told what went wrong", async () => {
  const owner = await account(server)
  const agent = await login(server, owner)
  const { repo, sync } = agent.com.atproto
  const { uri, cid } = await agent.post({ text: "first", createdAt })
  const rkey = uri.split("/").pop()
  const read = await repo.getRecord({ repo: owner.handle, collection: POST, rkey })
  assert.deepEqual([read.data.cid, read.data.value.text], [cid, "first"])
  await agent.upsertProfile(() => ({ displayName: "Bot" }))
  await agent.upsertProfile((profile) => ({ ...profile, description: "changed" }))
  const profile = await repo.getRecord({ repo: owner.did, collection: PROFILE, rkey: "self" })
  assert.deepEqual([profile.data.value.displayName, profile.data.value.description], ["Bot", "changed"])
  const picture = new Uint8Array([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])
  const { blob } = (await agent.uploadBlob(picture, { encoding: "image/png" })).data
  await agent.post({ text: "with a picture", createdAt, embed: { $type: "app.bsky.embed.images", images: [{ image: blob, alt: "" }] } })
  const kept = await sync.getBlob({ did: owner.did, cid: blob.ref.toString() })
  assert.deepEqual(new Uint8Array(kept.data), picture)
  const writes = Array.from({ length: 200 }, (_, number) => ({
    $type: "com.atproto.repo.applyWrites#create",
    collection: "com.example.kind",
    value: { $type: "com.example.kind", number },
  }))
  assert.equal((await repo.applyWrites({ repo: owner.did, writes })).data.results.length, 200)
  const listed = []
  for (let cursor, more = true; more; more = cursor !== undefined) {
    const page = await repo.listRecords({ repo: owner.did, collection: "com.example.kind", limit: 90, cursor })
    listed.push(...page.data.records)
    cursor = page.data.cursor
  }
  assert.equal(new Set(listed.map(({ uri }) => uri)).size, 200)
  await agent.deletePost(uri)
  await assert.rejects(repo.getRecord({ repo: owner.did, collection: POST, rkey }), { status: 400, error: "RecordNotFound" })
  const swap = { repo: owner.did, collection: PROFILE, rkey: "self", record: { displayName: "x" }, swapRecord: cid }
  await assert.rejects(repo.putRecord(swap), { status: 400, error: "InvalidSwap" })
  const { refreshJwt } = agent.session
  await agent.sessionManager.refreshSession()
  assert.notEqual(agent.session.refreshJwt, refreshJwt)
  await assert.rejects(login(server, { ...owner, password: "wrong" }), { status: 401, error: "AuthenticationRequired" })
})

test("a repository and a record's proof are verified under the key of the DID document", async () => {
  const owner = await account(server)
  const agent = await login(server, owner)
  for (let number = 0; number < 30; number++) {
    await agent.post({ text: `post ${number}`, createdAt })
  }
  const { sync, repo } = agent.com.atproto
  const { data } = await sync.getRepo({ did: owner.did })
  const { creates, commit } = await verifyRepoCar(new Uint8Array(data), owner.did, owner.key)
  assert.equal(creates.length, 30)
  const latest = await sync.getLatestCommit({ did: owner.did })
  assert.equal(latest.data.rev, commit.rev)
  const { rkey, cid } = creates[7]
  const proof = await sync.getRecord({ did: owner.did, collection: POST, rkey })
  const claims = [{ collection: POST, rkey, cid }]
  const verified = await verifyProofs(new Uint8Array(proof.data), claims, owner.did, owner.key)
  assert.deepEqual([verified.verified.length, verified.unverified.length], [1, 0])
  const status = await sync.getRepoStatus({ did: owner.did })
  assert.deepEqual(status.data, { did: owner.did, active: true, rev: commit.rev })
  const listed = await sync.listRepos({})
  assert.ok(listed.data.repos.some(({ did, rev, active }) => did === owner.did && rev === commit.rev && active))
  assert.deepEqual((await repo.describeRepo({ repo: owner.did })).data.collections, [POST])
})

test("the protocol's own reader of the stream verifies every commit", async () => {
  const owner = await account(server)
  const agent = await login(server, owner)
  const first = await agent.post({ text: "before", createdAt })
  const [events, errors] = [[], []]
  const firehose = new Firehose({
    service: server.baseUrl.replace("http", "ws"),
    idResolver: resolver(server, owner),
    runner: new MemoryRunner({ startCursor: 0 }),
    filterCollections: [POST],
    handleEvent: (event) => event.did === owner.did && events.push(event),
    onError: (error) => String(error.cause ?? error).includes(owner.did) && errors.push(error),
  })
  const reading = firehose.start()
  await agent.post({ text: "after", createdAt })
  await agent.deletePost(first.uri)
  await until("the deletion", () => events.some(({ event }) => event === "delete"))
  await firehose.destroy()
  await reading
  assert.deepEqual(events.map(({ event }) => event), ["identity", "account", "create", "create", "delete"])
  assert.deepEqual(events.filter(({ event }) => event === "create").map(({ record }) => record.text), ["before", "after"])
  assert.deepEqual(errors, [])
})

test("another reader of the stream reads every frame by its schema", async () => {
  const owner = await account(server)
  const agent = await login(server, owner)
  await agent.post({ text: "x", createdAt })
  const frames = new FirehoseSubscription({
    service: server.baseUrl.replace("http", "ws"),
    nsid: ComAtprotoSyncSubscribeRepos.mainSchema,
    params: { cursor: 0 },
  })
  const kinds = []
  let seq = 0
  for await (const frame of frames) {
    assert.ok(frame.seq > seq)
    seq = frame.seq
    if ((frame.did ?? frame.repo) === owner.did) {
      kinds.push(frame.$type.split("#")[1])
    }
    if (kinds.length === 4) {
      break
    }
  }
  assert.deepEqual(kinds, ["identity", "account", "commit", "commit"])
})

test("Python's client logs in, writes, reads and follows the stream", async () => {
  const { did, handle, password } = await account(server)
  const program = fileURLToPath(new URL("python_accounts.py", import.meta.url))
  const { stdout } = await promisify(execFile)(PYTHON, [program, server.baseUrl, did, handle, password])
  assert.equal(stdout.trim(), "done")
})
