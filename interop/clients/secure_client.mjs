// Writes and reads a stream over TLS; run by `secure.test.mjs`, because what a process trusts is fixed when it starts.

import assert from "node:assert/strict"
import { DurableStream, stream } from "@durable-streams/client"
import { assertNumbers, numbers, readAll } from "./bed.mjs"

const url = process.argv[2]
// One try; a certificate that is not trusted is not a failure that passes.
const backoffOptions = { initialDelay: 10, maxDelay: 10, multiplier: 1, maxRetries: 0 }

const json = new DurableStream({ url, contentType: "application/json", backoffOptions })
await json.create()
await Promise.all(numbers(0, 20).map((number) => json.append(number)))
assertNumbers(await readAll(json), 20)
for (const live of ["sse", "long-poll"]) {
  const response = await stream({ url, live, offset: "-1", json: true, backoffOptions })
  const first = await new Promise((resolve) => response.subscribeJson((batch) => resolve(batch.items)))
  assertNumbers(first, 20)
  response.cancel()
}
process.exit(0)
