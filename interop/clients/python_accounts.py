"""Accounts of the AT Protocol through PyPI's `atproto`, unmodified: url, DID, handle and password are the arguments."""

import sys
import threading

from atproto import CAR, Client, FirehoseSubscribeReposClient, models, parse_subscribe_repos_message

URL, DID, HANDLE, PASSWORD = sys.argv[1:]
POST = "app.bsky.feed.post"
RECORD = {"$type": POST, "text": "from Python", "createdAt": "2026-01-01T00:00:00.000Z"}
SECONDS = 30

client = Client(base_url=URL + "/xrpc")
credentials = models.ComAtprotoServerCreateSession.Data(identifier=HANDLE, password=PASSWORD)
session = client.com.atproto.server.create_session(credentials)
assert (session.did, session.handle) == (DID, HANDLE)
headers = {"Authorization": "Bearer " + session.access_jwt}

seen = []
done = threading.Event()
parameters = models.ComAtprotoSyncSubscribeRepos.Params(cursor=0)
stream = FirehoseSubscribeReposClient(parameters, base_uri=URL.replace("http", "ws") + "/xrpc")


def on_message(message):
    frame = parse_subscribe_repos_message(message)
    if getattr(frame, "repo", getattr(frame, "did", None)) != DID:
        return
    seen.append(type(frame).__name__)
    if isinstance(frame, models.ComAtprotoSyncSubscribeRepos.Commit) and frame.ops:
        blocks = CAR.from_bytes(frame.blocks).blocks
        assert any(block == RECORD for block in blocks.values()), blocks
        done.set()


threading.Thread(target=stream.start, args=(on_message,), daemon=True).start()
data = models.ComAtprotoRepoCreateRecord.Data(repo=DID, collection=POST, record=RECORD)
made = client.com.atproto.repo.create_record(data, headers=headers)
listed = client.com.atproto.repo.list_records(models.ComAtprotoRepoListRecords.Params(repo=DID, collection=POST))
assert [record.uri for record in listed.records] == [made.uri]
archive = client.com.atproto.sync.get_repo(models.ComAtprotoSyncGetRepo.Params(did=DID))
assert any(block == RECORD for block in CAR.from_bytes(archive).blocks.values())
assert done.wait(SECONDS), seen
assert seen == ["Identity", "Account", "Commit", "Commit"], seen
print("done")
