// Runs the published conformance suite against a server of this tree and judges it by `expected-failures.txt`: a test
// that is listed and passes fails the run, and so does one that is not listed and fails.
//
//   node suite.mjs [PATTERN]   only the tests whose names match the regular expression
//   node suite.mjs --prune     first takes the tests that pass off the list

import { spawn } from "node:child_process"
import { once } from "node:events"
import { existsSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { Server, atExit } from "./server.mjs"

/** What the pinned version of the suite holds; another count means that tests were lost. */
const TESTS = 338

/** How many of the slowest tests are named. */
const SLOWEST = 5

const here = fileURLToPath(new URL(".", import.meta.url))

const LIST = join(here, "expected-failures.txt")

/** The lines of the list that are not comments. */
function expectedFailures() {
  const lines = readFileSync(LIST, "utf8").split("\n")
  return new Set(lines.map((line) => line.trim()).filter((line) => line !== "" && !line.startsWith("#")))
}

/** The first lines of a failure, and where in the suite's source it arose. */
function explain(messages) {
  const lines = messages.join("\n").split("\n")
  const said = lines.filter((line) => !/^\s*at /.test(line) && line.trim() !== "").slice(0, 4)
  const place = /server-conformance-tests\/(dist\/[^):]+:\d+)/.exec(lines.join("\n"))?.[1]
  return [...said, ...(place === undefined ? [] : [`at ${place}`])].join("\n    ")
}

/** Every test as `{ name, group, state, ms, message }`, in the suite's order. */
async function results(server, pattern) {
  const report = join(server.folder, "report.json")
  const words = ["run", "--root", here, "--pool=threads", "--reporter=json", `--outputFile=${report}`]
  if (pattern !== undefined) {
    words.push("-t", pattern)
  }
  const environment = { ...process.env, SUITE_BASE_URL: server.baseUrl, CI: "true" }
  const vitest = [join(here, "node_modules/vitest/vitest.mjs"), ...words, "suite.test.mjs"]
  const run = spawn(process.execPath, vitest, { stdio: ["ignore", "pipe", "pipe"], env: environment })
  const forget = atExit(() => run.kill("SIGKILL"))
  let said = ""
  run.stdout.on("data", (text) => (said += text))
  run.stderr.on("data", (text) => (said += text))
  await once(run, "close")
  forget()
  if (!existsSync(report)) {
    throw new Error(`the suite left no report:\n${said}`)
  }
  const tests = JSON.parse(readFileSync(report, "utf8")).testResults.flatMap((file) => file.assertionResults)
  if (tests.length !== TESTS) {
    throw new Error(`the suite has ${tests.length} tests, not ${TESTS}:\n${said}`)
  }
  return tests.map((test) => ({
    name: [...test.ancestorTitles, test.title].join(" > "),
    group: test.ancestorTitles[0],
    state: test.status,
    ms: Math.round(test.duration ?? 0),
    message: explain(test.failureMessages ?? []),
  }))
}

/** One line for each group of the suite: passed of all, seconds. */
function printGroups(tests) {
  const groups = new Map()
  for (const test of tests) {
    const group = groups.get(test.group) ?? { passed: 0, all: 0, ms: 0 }
    group.passed += test.state === "passed" ? 1 : 0
    group.all += 1
    group.ms += test.ms
    groups.set(test.group, group)
  }
  for (const [name, { passed, all, ms }] of groups) {
    console.log(`  ${name.padEnd(36)} ${String(passed).padStart(3)} of ${String(all).padStart(3)}  ${(ms / 1000).toFixed(1)} s`)
  }
}

function printSlowest(tests) {
  const slowest = tests.toSorted((a, b) => b.ms - a.ms).slice(0, SLOWEST)
  console.log(`slowest: ${slowest.map((test) => `${test.name} (${(test.ms / 1000).toFixed(1)} s)`).join("; ")}`)
}

/** Prints what went as it should not, and returns how many tests did. */
function judge(tests, expected, whole) {
  const failed = tests.filter((test) => test.state !== "passed" && !expected.has(test.name))
  const unexpected = tests.filter((test) => test.state === "passed" && expected.has(test.name))
  const names = new Set(tests.map((test) => test.name))
  const unknown = whole ? [...expected].filter((name) => !names.has(name)) : []
  for (const test of failed) {
    console.log(`FAILED ${test.name}\n    ${test.message}`)
  }
  for (const test of unexpected) {
    console.log(`PASSED, take it off expected-failures.txt: ${test.name}`)
  }
  for (const name of unknown) {
    console.log(`UNKNOWN to the suite, in expected-failures.txt: ${name}`)
  }
  return failed.length + unexpected.length + unknown.length
}

/** Takes what passes off the list. Nothing puts a test on it but a hand. */
function prune(tests) {
  const passed = new Set(tests.filter((test) => test.state === "passed").map((test) => test.name))
  const kept = readFileSync(LIST, "utf8").split("\n").filter((line) => !passed.has(line.trim()))
  writeFileSync(LIST, kept.join("\n"))
}

const words = process.argv.slice(2)
const pruning = words.includes("--prune")
const pattern = words.find((word) => word !== "--prune")
const begun = Date.now()
const server = await Server.start()
try {
  const tests = (await results(server, pattern)).filter((test) => !["pending", "skipped", "todo"].includes(test.state))
  printGroups(tests)
  printSlowest(tests)
  if (pruning) {
    prune(tests)
  }
  const wrong = judge(tests, expectedFailures(), pattern === undefined)
  const passed = tests.filter((test) => test.state === "passed").length
  console.log(`${passed} of ${tests.length} tests of the suite pass, in ${((Date.now() - begun) / 1000).toFixed(0)} s`)
  console.log(`${tests.length - wrong} passed, ${wrong} failed`)
  process.exitCode = wrong === 0 && tests.length > 0 ? 0 : 1
} finally {
  await server.finish()
}
