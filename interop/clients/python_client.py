"""PyPI durable-streams: create, append, read, resume and wait, blocking and not, through a restart of the server.

The first argument is the server's URL. A line `restart` on standard output asks for a restart, and the answer on
standard input tells that it has happened; to `keyed`, the answer is the URL of another server and a key of it.
"""

import asyncio
import sys
import threading
import time
import unittest

from durable_streams import (
    AsyncDurableStream,
    DurableStream,
    DurableStreamError,
    SeqConflictError,
    StreamExistsError,
    StreamNotFoundError,
    astream,
    stream,
)

BASE = sys.argv.pop(1)
TEXT = "text/plain"
JSON = "application/json"
BYTES = "application/octet-stream"


def url(path: str) -> str:
    return f"{BASE}/v1/stream/python/{path}"


def ask_for(what: str) -> str:
    print(what, flush=True)
    return sys.stdin.readline().strip()


def try_again(_: Exception) -> dict:
    """What a reader does about an error: the same again, soon."""
    time.sleep(0.05)
    return {}


class Blocking(unittest.TestCase):
    def test_text_and_bytes_come_back_whole_and_from_an_offset(self) -> None:
        for content_type, parts in ((TEXT, ["first ", "zweit€"]), (BYTES, [bytes(range(256)), b"\0\r\n"])):
            with self.subTest(content_type):
                handle = DurableStream.create(url(f"kinds-{content_type[:4]}"), content_type=content_type)
                middle = handle.append(parts[0]).next_offset
                handle.append(parts[1])
                raw = [part if isinstance(part, bytes) else part.encode() for part in parts]
                with handle.stream(live=False) as response:
                    self.assertEqual(response.read_bytes(), b"".join(raw))
                with handle.stream(live=False, offset=middle) as response:
                    self.assertEqual(response.read_bytes(), raw[1])

    def test_messages_keep_their_boundaries_and_order(self) -> None:
        handle = DurableStream.create(url("messages"), content_type=JSON)
        sent = [{"n": 1}, [1, [2]], "a\nb", None, 0.5, {"deep": [{}]}]
        for message in sent:
            handle.append(message)
        with handle.stream(live=False) as response:
            self.assertEqual(response.read_json(), sent)
        head = handle.head()
        self.assertEqual(head.content_type, JSON)
        with stream(url("messages"), offset=head.offset, live=False) as response:
            self.assertEqual(response.read_json(), [])

    def test_appends_of_many_threads_are_all_there_once(self) -> None:
        handle = DurableStream.create(url("threads"), content_type=JSON)

        def append(writer: int) -> None:
            for number in range(20):
                handle.append([writer, number])

        threads = [threading.Thread(target=append, args=(writer,)) for writer in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with handle.stream(live=False) as response:
            read = response.read_json()
        self.assertEqual(len(read), 100)
        for writer in range(5):
            self.assertEqual([number for who, number in read if who == writer], list(range(20)))

    def test_refusals_are_the_clients_own_errors(self) -> None:
        missing = DurableStream(url("missing"), content_type=TEXT)
        self.assertRaises(StreamNotFoundError, missing.head)
        self.assertRaises(StreamNotFoundError, missing.append, b"x")
        handle = DurableStream.create(url("refused"), content_type=TEXT)
        self.assertRaises(StreamExistsError, DurableStream.create, url("refused"), content_type=JSON)
        handle.append("a", seq="2")
        self.assertRaises(SeqConflictError, handle.append, "b", seq="1")
        with self.assertRaises(DurableStreamError) as caught:
            stream(url("refused"), offset="nonsense", live=False)
        self.assertEqual(caught.exception.status, 400)
        handle.delete()
        self.assertRaises(StreamNotFoundError, handle.head)

    def test_a_stream_expires(self) -> None:
        DurableStream.create(url("short"), content_type=TEXT, ttl_seconds=1, body="old")
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                DurableStream.head_static(url("short"))
            except StreamNotFoundError:
                return
            time.sleep(0.05)
        self.fail("it is still there")

    def test_a_reader_waits_by_long_poll_and_by_events(self) -> None:
        for live in ("long-poll", "sse"):
            with self.subTest(live):
                handle = DurableStream.create(url(f"live-{live}"), content_type=JSON)
                handle.append(0)
                got = []
                ready = threading.Event()

                def read(live: str = live, got: list = got, ready: threading.Event = ready) -> None:
                    with stream(url(f"live-{live}"), offset="-1", live=live, timeout=30) as response:
                        for item in response.iter_json():
                            got.append(item)
                            ready.set()
                            if len(got) == 20:
                                return

                reader = threading.Thread(target=read, daemon=True)
                reader.start()
                self.assertTrue(ready.wait(30))
                for number in range(1, 20):
                    handle.append(number)
                reader.join(30)
                self.assertEqual(got, list(range(20)))


class Keyed(unittest.TestCase):
    def test_a_server_with_keys_serves_who_has_one(self) -> None:
        base, key = ask_for("keyed").split()
        address, headers = f"{base}/v1/stream/python/keyed", {"authorization": lambda: f"Bearer {key}"}
        handle = DurableStream.create(address, content_type=JSON, headers=headers)
        handle.append({"n": 1})
        with handle.stream(live=False) as response:
            self.assertEqual(response.read_json(), [{"n": 1}])
        with self.assertRaises(DurableStreamError) as caught:
            stream(address, live=False)
        self.assertEqual(caught.exception.status, 401)


class Waiting(unittest.IsolatedAsyncioTestCase):
    async def test_an_asynchronous_reader_follows_a_writer(self) -> None:
        handle = await AsyncDurableStream.create(url("asynchronous"), content_type=JSON)

        async def write() -> None:
            for number in range(20):
                await handle.append(number)

        writer = asyncio.create_task(write())
        got = []
        async with astream(url("asynchronous"), offset="-1", live="long-poll") as response:
            async for item in response.iter_json():
                got.append(item)
                if len(got) == 20:
                    break
        await writer
        self.assertEqual(got, list(range(20)))


class Restart(unittest.TestCase):
    def test_a_reader_goes_on_and_nothing_is_lost_or_twice(self) -> None:
        handle = DurableStream.create(url("restart"), content_type=JSON)
        for number in range(10):
            handle.append(number)
        got = []

        def read() -> None:
            with stream(url("restart"), offset="-1", live="long-poll", on_error=try_again, timeout=30) as response:
                for item in response.iter_json():
                    got.append(item)
                    if len(got) == 20:
                        return

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        self.assertEqual(ask_for("restart"), "restarted")
        handle = DurableStream.connect(url("restart"))
        for number in range(10, 20):
            handle.append(number)
        reader.join(30)
        self.assertEqual(got, list(range(20)))


unittest.main(verbosity=2)
