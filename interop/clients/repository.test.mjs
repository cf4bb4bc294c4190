// Archives of repositories as the protocol's own library reads them: the golden files, which a test of crates/repo makes again.

import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import { test } from "node:test"
import { P256Keypair, Secp256k1Keypair } from "@atproto/crypto"
import * as repo from "@atproto/repo"

const DID = "did:web:bot.example"
const COLLECTION = "com.example.kind"
const key = await Secp256k1Keypair.import(new Uint8Array(32).fill(9))
const other = await Secp256k1Keypair.import(new Uint8Array(32).fill(8))

const archive = (name) => new Uint8Array(readFileSync(new URL(`../../crates/repo/golden/${name}`, import.meta.url)))

/** The key of a record of the golden files: a TID of its number. */
function recordKey(number) {
  const digits = "234567abcdefghijklmnopqrstuvwxyz"
  const bits = (BigInt(number) * 7919n) << 10n
  return Array.from({ length: 13 }, (_, at) => digits[Number((bits >> BigInt(5 * (12 - at))) & 31n)]).join("")
}

test("an exported repository is verified whole", async () => {
  const { creates, commit } = await repo.verifyRepoCar(archive("export.car"), DID, key.did())
  const expected = [...Array(40).keys(), 100].filter((number) => number !== 20).map(recordKey)
  assert.deepEqual(creates.map(({ rkey }) => rkey).sort(), expected.sort())
  assert.ok(creates.every(({ collection }) => collection === COLLECTION))
  assert.equal(commit.rev.length, 13)
})

test("an exported repository is refused under another key, and with another bit", async () => {
  await assert.rejects(repo.verifyRepoCar(archive("export.car"), DID, other.did()))
  const damaged = archive("export.car")
  damaged[damaged.length - 1] ^= 1
  await assert.rejects(repo.verifyRepoCar(damaged, DID, key.did()))
})

test("a record is found in its proof", async () => {
  const records = await repo.verifyRecords(archive("record.car"), DID, key.did())
  assert.deepEqual(records.map(({ rkey, record }) => [rkey, record.n]), [[recordKey(8), 8]])
})

test("the absence of a record is proven where it is absent and nowhere else", async () => {
  const claim = (number) => [{ collection: COLLECTION, rkey: recordKey(number), cid: null }]
  const absent = await repo.verifyProofs(archive("absence.car"), claim(20), DID, key.did())
  assert.deepEqual([absent.verified.length, absent.unverified.length], [1, 0])
  const present = await repo.verifyProofs(archive("record.car"), claim(8), DID, key.did())
  assert.deepEqual([present.verified.length, present.unverified.length], [0, 1])
})

test("commits of both curves are signed as the protocol's own library signs", async () => {
  for (const [name, curve] of [["sync-k256.car", Secp256k1Keypair], ["sync-p256.car", P256Keypair]]) {
    const { root, blocks } = await repo.readCarWithRoot(archive(name))
    assert.equal(blocks.size, 1)
    const commit = await new repo.MemoryBlockstore(blocks).readObj(root, repo.def.commit)
    const signer = await curve.import(new Uint8Array(32).fill(7))
    assert.equal(await repo.verifyCommitSig(commit, signer.did()), true)
    const { sig, ...unsigned } = commit
    const theirs = await repo.signCommit(unsigned, signer)
    assert.deepEqual(Buffer.from(theirs.sig), Buffer.from(sig), `${name}: both sign the same bytes the same way`)
  }
})
