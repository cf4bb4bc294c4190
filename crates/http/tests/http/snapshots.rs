//! Snapshots, retention and what never changes, over the wire.

use crate::fake::{Fake, Stage, snapshot_digest};
use crate::wire::{Answer, Server, request};
use highwater_node::Unavailable;
use highwater_stream::machine::Options;
use std::io::Write;
use ursula_headers::head::StreamHead;
use ursula_headers::immutable::{ChunkMark, ChunkRead, ImmutableSnapshotRead};
use ursula_headers::range::ContentRange;
use ursula_headers::snapshot::{PartStaged, PartsCommit, PartsManifest, SnapshotPublishAnswer, SnapshotRead};

const PATH: &str = "/v1/stream/app/db";
const TEXT: (&str, &str) = ("content-type", "text/plain");

fn created(server: &Server, body: &[u8]) -> String {
    let answer = server.ask("PUT", PATH, &[TEXT], body);
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.header("stream-incarnation").expect("a token").to_owned()
}

fn publish(server: &Server, offset: u64, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    server.ask("PUT", &format!("{PATH}/snapshot/{offset}"), &[&[TEXT], headers].concat(), body)
}

fn stage(server: &Server, body: &[u8]) -> String {
    let answer = server.ask("POST", &format!("{PATH}/snapshot/0/parts"), &[], body);
    assert_eq!(answer.status, 201, "{answer:?}");
    PartStaged::parse(answer.pairs()).expect("a part").part.to_string()
}

fn commit(server: &Server, offset: u64, ids: &[&str], body: &[u8]) -> Answer {
    let list: String = ids.iter().map(|id| format!("{id}\n")).collect();
    let (count, digest) = (ids.len().to_string(), snapshot_digest("text/plain", body));
    let headers = [("stream-snapshot-parts", count.as_str()), ("stream-snapshot-digest", &digest)];
    publish(server, offset, &headers, list.as_bytes())
}

fn read(server: &Server, offset: u64, headers: &[(&str, &str)]) -> Answer {
    server.ask("GET", &format!("{PATH}/snapshot/{offset:020}"), headers, b"")
}

/// With one request and in parts, from the body's first byte over the bound on; what was staged can still be used.
#[test]
fn a_snapshot_that_is_too_large_is_refused_with_the_bound_and_changes_nothing() {
    let server = Server::start(Fake::with(Options { snapshot_bytes_max: 12, ..Options::default() }));
    created(&server, b"0123456789");
    assert_eq!(publish(&server, 5, &[], b"a dozen here").status, 204, "the bound itself");
    let too_large = |answer: Answer| {
        assert_eq!(answer.told(), (413, "SNAPSHOT_TOO_LARGE".to_owned()));
        assert_eq!(answer.header("ursula-max-snapshot-bytes"), Some("12"));
    };
    too_large(publish(&server, 6, &[], b"one more than"));
    let parts = [stage(&server, b"ten bytes."), stage(&server, b"two"), stage(&server, b"ok")];
    let [ten, two, ok] = parts.each_ref().map(String::as_str);
    too_large(commit(&server, 7, &[ten, two], b"ten bytes.two"));
    let head = server.ask("HEAD", PATH, &[], b"");
    assert_eq!(head.header("stream-snapshot-offset"), Some("00000000000000000005"), "{head:?}");
    assert_eq!(commit(&server, 8, &[ten, ok], b"ten bytes.ok").status, 204);
}

#[test]
fn a_snapshot_is_read_whole_and_by_range_and_head_names_it() {
    let server = Server::start(Fake::new());
    let token = created(&server, b"0123456789");
    let answer = publish(&server, 5, &[("stream-incarnation", &token)], b"the snapshot");
    assert_eq!(answer.status, 204, "{answer:?}");
    let head = server.ask("HEAD", PATH, &[], b"");
    let parsed = StreamHead::parse(head.pairs()).expect("a head");
    let named = parsed.snapshot().expect("a snapshot");
    assert_eq!((named.offset.get(), named.digest.to_string()), (5, snapshot_digest("text/plain", b"the snapshot")));
    assert_eq!(head.header("ursula-max-snapshot-bytes"), Some("1073741824"));

    let whole = read(&server, 5, &[]);
    assert_eq!((whole.status, whole.text().as_str()), (200, "the snapshot"));
    let parsed = SnapshotRead::parse(whole.pairs()).expect("a snapshot");
    assert_eq!((parsed.snapshot, parsed.incarnation.to_string()), (named, token));
    assert_eq!((whole.header("accept-ranges"), whole.header("content-type")), (Some("bytes"), Some("text/plain")));
    let tag = whole.header("etag").expect("a tag").to_owned();
    assert_eq!(read(&server, 5, &[("if-none-match", &tag)]).status, 304);

    for (range, status, text, of) in [
        ("bytes=0-2", 206, "the", "bytes 0-2/12"),
        ("bytes=4-", 206, "snapshot", "bytes 4-11/12"),
        ("bytes=-4", 206, "shot", "bytes 8-11/12"),
        ("bytes=11-99", 206, "t", "bytes 11-11/12"),
        ("bytes=0-1,3-4", 200, "the snapshot", ""),
        ("items=0-1", 200, "the snapshot", ""),
    ] {
        let answer = read(&server, 5, &[("range", range)]);
        assert_eq!((answer.status, answer.text().as_str()), (status, text), "{range}");
        assert_eq!(answer.header("content-range").unwrap_or_default(), of, "{range}");
        assert!(ContentRange::parse(answer.status, answer.pairs()).is_ok(), "{range}");
        let ahead = server.ask("HEAD", &format!("{PATH}/snapshot/5"), &[("range", range)], b"");
        assert_eq!((ahead.status, ahead.header("content-length")), (status, Some(text.len().to_string().as_str())));
    }
    let guarded = read(&server, 5, &[("range", "bytes=0-2"), ("if-range", &tag)]);
    assert_eq!((guarded.status, guarded.text().as_str()), (200, "the snapshot"));
    let beyond = read(&server, 5, &[("range", "bytes=12-")]);
    assert_eq!(beyond.told(), (416, "RANGE_NOT_SATISFIABLE".to_owned()));
    assert_eq!(ContentRange::parse(416, beyond.pairs()), Ok(Some(ContentRange::Unsatisfied { total: 12 })));
}

#[test]
fn only_the_latest_snapshot_is_served_and_the_token_is_held() {
    let server = Server::start(Fake::new());
    let token = created(&server, b"0123456789");
    let none = read(&server, 5, &[]);
    assert_eq!(none.told(), (404, "SNAPSHOT_NOT_FOUND".to_owned()));
    assert_eq!(none.header("stream-incarnation"), Some(token.as_str()));
    publish(&server, 5, &[], b"older");
    publish(&server, 7, &[], b"newer");
    assert_eq!(read(&server, 5, &[]).told(), (404, "SNAPSHOT_NOT_FOUND".to_owned()));
    assert_eq!(read(&server, 7, &[("stream-incarnation", &token)]).text(), "newer");
    let mismatch = read(&server, 7, &[("stream-incarnation", "7")]);
    assert_eq!(mismatch.told(), (412, "INCARNATION_MISMATCH".to_owned()));
    assert_eq!(server.ask("GET", "/v1/stream/none/snapshot/0", &[], b"").told(), (404, "STREAM_NOT_FOUND".to_owned()));
    assert_eq!(server.ask("GET", &format!("{PATH}/snapshot/x"), &[], b"").code(), "INVALID_OFFSET");
}

#[test]
fn publishes_that_meet_are_told_apart_as_the_contract_has_it() {
    let server = Server::start(Fake::new());
    let token = created(&server, b"0123456789");
    assert_eq!(publish(&server, 5, &[], b"five").status, 204);
    let repeat = publish(&server, 5, &[], b"five");
    assert!(
        matches!(SnapshotPublishAnswer::parse(204, repeat.pairs()), Ok(Some(SnapshotPublishAnswer::Published { .. }))),
        "{repeat:?}"
    );
    let conflict = publish(&server, 5, &[], b"FIVE");
    assert_eq!(conflict.told(), (409, "SNAPSHOT_CONFLICT".to_owned()));
    let parsed = SnapshotPublishAnswer::parse(409, conflict.pairs()).expect("named").expect("a conflict");
    assert!(!parsed.supersedes(ursula_headers::value::Offset::from_u64(5)), "the same offset is a conflict");
    publish(&server, 8, &[], b"eight");
    let superseded = publish(&server, 6, &[], b"six");
    let parsed = SnapshotPublishAnswer::parse(409, superseded.pairs()).expect("named").expect("a later one");
    assert!(parsed.supersedes(ursula_headers::value::Offset::from_u64(6)), "{superseded:?}");
    let beyond = publish(&server, 11, &[], b"eleven");
    assert_eq!(beyond.told(), (409, "SNAPSHOT_CONFLICT".to_owned()));
    assert_eq!((beyond.next(), beyond.header("stream-snapshot-offset")), (10, None));
    let mismatch = publish(&server, 9, &[("stream-incarnation", "7")], b"nine");
    assert_eq!((mismatch.status, mismatch.header("stream-incarnation")), (412, Some(token.as_str())));
    let altered = publish(&server, 9, &[("stream-snapshot-digest", &snapshot_digest("text/plain", b"other"))], b"nine");
    assert_eq!(altered.told(), (400, "SNAPSHOT_DIGEST_MISMATCH".to_owned()));
    let typed = [("stream-snapshot-digest", snapshot_digest("text/plain; a=b", b"nine"))];
    let typed = publish_as(&server, 9, " Text/Plain ;  A=b", &[(typed[0].0, &typed[0].1)], b"nine");
    assert_eq!(typed.status, 204, "the normalised content type is part of the digest: {typed:?}");
}

fn publish_as(server: &Server, offset: u64, content_type: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let content_type = [("content-type", content_type)];
    server.ask("PUT", &format!("{PATH}/snapshot/{offset}"), &[&content_type[..], headers].concat(), body)
}

/// A client that sends a gibibyte again because an answer was lost should be told before it does.
#[test]
fn an_identical_publish_is_answered_before_its_body_is_read() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    created(&server, b"0123456789");
    publish(&server, 5, &[], b"five");
    fake.seen();
    let digest = snapshot_digest("text/plain", b"five");
    let headers = [TEXT, ("stream-snapshot-digest", &digest), ("content-length", "30000000")];
    let mut stream = server.connect();
    stream.write_all(&request("PUT", &format!("{PATH}/snapshot/5"), &headers, b"")).expect("the head is taken");
    assert_eq!(Answer::read(&mut stream, "PUT").status, 204);
    let headers = [&headers[..], &[("stream-snapshot-parts", "4096")]].concat();
    let headers: Vec<_> = headers.into_iter().filter(|(name, _)| *name != "content-length").collect();
    let mut stream = server.connect();
    let headers = [&headers[..], &[("content-length", "9999")]].concat();
    stream.write_all(&request("PUT", &format!("{PATH}/snapshot/5"), &headers, b"")).expect("the head is taken");
    assert_eq!(Answer::read(&mut stream, "PUT").status, 204);
    assert!(!fake.seen().contains(&Stage::Admit), "no room was asked for");
}

#[test]
fn a_snapshot_in_parts_is_their_bytes_in_the_order_of_the_list() {
    let server = Server::start(Fake::new());
    created(&server, b"0123456789");
    let ids: Vec<String> = [&b"one "[..], b"two ", b"three"].iter().map(|body| stage(&server, body)).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let order = [ids[2], ids[0], ids[1]];
    let answer = commit(&server, 5, &order, b"threeone two ");
    assert_eq!(answer.status, 204, "{answer:?}");
    assert_eq!(read(&server, 5, &[]).text(), "threeone two ");
    assert_eq!(read(&server, 5, &[("range", "bytes=4-9")]).text(), "eone t");
    assert_eq!(commit(&server, 5, &order, b"threeone two ").status, 204, "a repeat, although the parts are taken");
    assert_eq!(commit(&server, 6, &order, b"threeone two ").told(), (400, "UNKNOWN_PART".to_owned()));
}

#[test]
fn a_commit_of_parts_says_what_is_wrong_with_it() {
    let server = Server::start(Fake::new());
    created(&server, b"0123456789");
    let id = stage(&server, b"one");
    let digest = snapshot_digest("text/plain", b"one");
    let commit_with = |headers: &[(&str, &str)], body: &str| publish(&server, 5, headers, body.as_bytes()).told();
    let named = ("stream-snapshot-digest", digest.as_str());
    let list = format!("{id}\n");
    for (headers, body, code) in [
        (&[("stream-snapshot-parts", "1")][..], list.as_str(), "INVALID_PARTS_COMMIT"),
        (&[("stream-snapshot-parts", "0"), named], &list, "INVALID_PARTS_COMMIT"),
        (&[("stream-snapshot-parts", "4097"), named], &list, "INVALID_PARTS_COMMIT"),
        (&[("stream-snapshot-parts", "01"), named], &list, "INVALID_PARTS_COMMIT"),
        (&[("stream-snapshot-parts", "2"), named], &list, "INVALID_PARTS_COMMIT"),
        (&[("stream-snapshot-parts", "1"), named], &id, "INVALID_PARTS_COMMIT"),
        (&[("stream-snapshot-parts", "1"), named], &format!("{id}\r\n"), "INVALID_PARTS_COMMIT"),
        (&[("stream-snapshot-parts", "2"), named], &format!("{id}\n{id}\n"), "INVALID_PARTS_COMMIT"),
        (&[("stream-snapshot-parts", "1"), named], &"x".repeat(266_241), "INVALID_PARTS_COMMIT"),
        (&[("stream-snapshot-parts", "1"), named], "4503599627379999\n", "UNKNOWN_PART"),
        (&[("stream-snapshot-parts", "1"), named], "part-1\n", "UNKNOWN_PART"),
        (&[("stream-snapshot-parts", "1"), ("stream-snapshot-digest", "00")], &list, "INVALID_HEADER"),
        (&[("producer-id", "w")], "", "INVALID_PRODUCER"),
    ] {
        assert_eq!(commit_with(headers, body), (400, code.to_owned()), "{headers:?} {body:?}");
    }
    let wrong = snapshot_digest("text/plain", b"ONE");
    let headers = [("stream-snapshot-parts", "1"), ("stream-snapshot-digest", wrong.as_str())];
    assert_eq!(commit_with(&headers, &list), (400, "SNAPSHOT_DIGEST_MISMATCH".to_owned()));
    assert_eq!(commit(&server, 5, &[&id], b"one").status, 204, "no refusal used the part up");
    let empty = server.ask("POST", &format!("{PATH}/snapshot/0/parts"), &[], b"");
    assert_eq!(empty.told(), (400, "INVALID_SNAPSHOT".to_owned()));
}

#[test]
fn what_the_published_client_renders_is_understood() {
    let server = Server::start(Fake::new());
    created(&server, b"0123456789");
    let parts = [&b"a"[..], b"b"].map(|body| {
        let answer = server.ask("POST", &format!("{PATH}/snapshot/0/parts"), &[], body);
        PartStaged::parse(answer.pairs()).expect("a part").part
    });
    let manifest = PartsManifest::new(parts.to_vec()).expect("a list");
    let digest = ursula_headers::value::SnapshotDigest::parse("digest", &snapshot_digest("text/plain", b"ab"))
        .expect("a digest");
    let mut headers = vec![("content-type", "text/plain".to_owned())];
    PartsCommit::for_manifest(&manifest, digest).render(|name, value| headers.push((name, value.to_owned())));
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let answer = server.ask("PUT", &format!("{PATH}/snapshot/10"), &headers, manifest.render().as_bytes());
    assert!(matches!(SnapshotPublishAnswer::parse(answer.status, answer.pairs()), Ok(Some(_))), "{answer:?}");
}

#[test]
fn discarded_parts_are_gone_and_the_published_ones_are_not() {
    let server = Server::start(Fake::new());
    let token = created(&server, b"0123456789");
    let (kept, gone) = (stage(&server, b"kept"), stage(&server, b"gone"));
    commit(&server, 5, &[&kept], b"kept");
    let answer = server.ask("DELETE", &format!("{PATH}/snapshot/parts"), &[], b"");
    assert_eq!((answer.status, answer.header("stream-incarnation")), (204, Some(token.as_str())));
    assert_eq!(commit(&server, 6, &[&gone], b"gone").told(), (400, "UNKNOWN_PART".to_owned()));
    assert_eq!(read(&server, 5, &[]).text(), "kept");
}

#[test]
fn staging_meets_its_bounds_in_parts_and_in_bytes() {
    let bounds = Options { staged_parts_max: 2, staged_bytes_max: 10, ..Options::default() };
    let server = Server::start(Fake::with(bounds));
    created(&server, b"");
    stage(&server, b"123456");
    let bytes = server.ask("POST", &format!("{PATH}/snapshot/0/parts"), &[], b"12345");
    assert_eq!(bytes.told(), (429, "STAGED_PARTS_LIMIT".to_owned()));
    assert_eq!((bytes.header("ursula-max-staged-bytes"), bytes.header("retry-after")), (Some("10"), None));
    stage(&server, b"1");
    let parts = server.ask("POST", &format!("{PATH}/snapshot/0/parts"), &[], b"1");
    assert_eq!((parts.status, parts.header("ursula-max-staged-parts")), (429, Some("2")));
    assert!(parts.header("stream-incarnation").is_some());
}

#[test]
fn retention_follows_the_snapshot_and_never_goes_back() {
    let server = Server::start(Fake::new());
    let token = created(&server, b"0123456789");
    let retain = |offset: u64| server.ask("PUT", &format!("{PATH}/retention/{offset}"), &[], b"");
    assert_eq!(retain(1).told(), (409, "SNAPSHOT_CONFLICT".to_owned()), "no snapshot yet");
    publish(&server, 5, &[], b"five");
    let above = retain(6);
    assert_eq!(above.told(), (409, "SNAPSHOT_CONFLICT".to_owned()));
    assert_eq!(above.header("stream-snapshot-offset"), Some("00000000000000000005"));
    for (offset, retained) in [(3, 3), (2, 3), (3, 3), (5, 5), (0, 5)] {
        let answer = retain(offset);
        assert_eq!((answer.status, answer.header("stream-incarnation")), (204, Some(token.as_str())));
        assert_eq!(answer.header("stream-retained-offset"), Some(format!("{retained:020}").as_str()));
    }
    let gone = server.ask("GET", &format!("{PATH}?offset=4"), &[], b"");
    assert_eq!((gone.told(), gone.next()), ((410, "STREAM_GONE".to_owned()), 5));
    assert_eq!(server.ask("GET", &format!("{PATH}?offset=-1"), &[], b"").status, 410);
    assert_eq!(server.ask("GET", &format!("{PATH}?offset=5"), &[], b"").text(), "56789");
    let head = server.ask("HEAD", PATH, &[], b"");
    assert_eq!(head.header("stream-retained-offset"), Some("00000000000000000005"));
    assert_eq!(publish(&server, 4, &[], b"four").told(), (410, "STREAM_GONE".to_owned()));
    assert_eq!(retain_malformed(&server), "INVALID_OFFSET");
}

fn retain_malformed(server: &Server) -> String {
    server.ask("PUT", &format!("{PATH}/retention/-1"), &[], b"").code()
}

#[test]
fn a_chunk_is_marked_when_it_can_never_be_otherwise() {
    let server = Server::start(Fake::new());
    let grid = 4 << 20;
    let token = created(&server, &vec![b'x'; grid + 3]);
    let chunk = |offset: usize| server.ask("GET", &format!("{PATH}/incarnation/{token}/chunk/{offset:020}"), &[], b"");
    for (offset, length, mark) in [
        (0, grid, ChunkMark::Immutable),
        (grid - 1, 1, ChunkMark::Immutable),
        (5, grid - 5, ChunkMark::Immutable),
        (grid, 3, ChunkMark::Unmarked),
        (grid + 3, 0, ChunkMark::Unmarked),
    ] {
        let answer = chunk(offset);
        assert_eq!((answer.status, answer.body.len()), (200, length), "{offset}");
        let parsed = ChunkRead::parse(answer.pairs()).expect("a chunk");
        assert_eq!(
            (parsed.mark(), parsed.offset().get(), parsed.len()),
            (mark, offset as u64, length as u64),
            "{offset}"
        );
        let cache = answer.header("cache-control").expect("a rule");
        let expected = if mark == ChunkMark::Unmarked { "no-store" } else { "public, max-age=31536000, immutable" };
        assert_eq!(cache, expected, "{offset}");
        let tag = answer.header("etag").expect("a tag");
        let path = format!("{PATH}/incarnation/{token}/chunk/{offset:020}");
        assert_eq!(server.ask("GET", &path, &[("if-none-match", tag)], b"").status, 304);
        let ahead = server.ask("HEAD", &path, &[], b"");
        assert_eq!((ahead.status, ahead.header("content-length")), (200, Some(length.to_string().as_str())));
    }
    assert_eq!(chunk(grid + 4).told(), (416, "OFFSET_OUT_OF_RANGE".to_owned()));
    server.ask("POST", PATH, &[("stream-closed", "true")], b"");
    for (offset, length) in [(grid, 3), (grid + 3, 0)] {
        let parsed = chunk(offset);
        let parsed = ChunkRead::parse(parsed.pairs()).expect("a chunk");
        assert_eq!((parsed.mark(), parsed.len()), (ChunkMark::ClosedTail, length));
    }
}

#[test]
fn an_immutable_path_has_one_spelling_and_holds_the_token() {
    let server = Server::start(Fake::new());
    let token = created(&server, b"0123456789");
    publish(&server, 5, &[], b"the snapshot");
    let get = |tail: &str| server.ask("GET", &format!("{PATH}/incarnation/{tail}"), &[], b"");
    for (tail, told) in [
        (format!("{token}/chunk/0"), (400, "INVALID_RESOURCE")),
        (format!("0{token}/chunk/00000000000000000000"), (400, "INVALID_RESOURCE")),
        (format!("{token}/chunk/0000000000000000000x"), (400, "INVALID_RESOURCE")),
        (format!("{token}/chunk/00000000000000000000?offset=1"), (400, "QUERY_NOT_ACCEPTED")),
        (format!("{token}/chunk/00000000000000000000?"), (400, "QUERY_NOT_ACCEPTED")),
        (format!("{token}/piece/00000000000000000000"), (404, "NOT_FOUND")),
        (format!("{token}/chunk"), (404, "NOT_FOUND")),
        ("7/chunk/00000000000000000000".to_owned(), (412, "INCARNATION_MISMATCH")),
        ("7/snapshot/00000000000000000005".to_owned(), (412, "INCARNATION_MISMATCH")),
        (format!("{token}/snapshot/00000000000000000006"), (404, "SNAPSHOT_NOT_FOUND")),
    ] {
        assert_eq!(get(&tail).told(), (told.0, told.1.to_owned()), "{tail}");
    }
    let snapshot = get(&format!("{token}/snapshot/00000000000000000005"));
    assert_eq!((snapshot.status, snapshot.text().as_str()), (200, "the snapshot"));
    ImmutableSnapshotRead::parse(snapshot.pairs()).expect("marked");
    assert_eq!(snapshot.header("cache-control"), Some("public, max-age=31536000, immutable"));
    let path = format!("{PATH}/incarnation/{token}/snapshot/00000000000000000005");
    let part = server.ask("GET", &path, &[("range", "bytes=4-")], b"");
    assert_eq!((part.status, part.text().as_str()), (206, "snapshot"));
    ImmutableSnapshotRead::parse(part.pairs()).expect("marked");
}

/// A newer snapshot takes the place of one that is being read, and its parts go: the reader must not take what it got for the
/// whole, and finds the newer one.
#[test]
fn an_answer_whose_snapshot_is_replaced_on_the_way_breaks_off() {
    let server = Server::start(Fake::new());
    created(&server, b"0123456789");
    publish(&server, 5, &[], &vec![b's'; 24 << 20]);
    let mut stream = server.connect();
    stream.write_all(&request("GET", &format!("{PATH}/snapshot/5"), &[], b"")).expect("taken");
    stream.peek(&mut [0]).expect("it has begun");
    assert_eq!(publish(&server, 6, &[], b"newer").status, 204);
    let broken = Answer::try_read(&mut stream, "GET").expect_err("not whole");
    assert!(!broken.is_empty());
    assert_eq!(read(&server, 5, &[]).told(), (404, "SNAPSHOT_NOT_FOUND".to_owned()));
    assert_eq!(read(&server, 6, &[]).text(), "newer");
}

/// The disk fails while a snapshot is sent.
#[test]
fn an_answer_whose_snapshot_cannot_be_read_on_breaks_off() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    created(&server, b"0123456789");
    publish(&server, 5, &[], &vec![b's'; 3 << 20]);
    fake.fail(Stage::Part, Unavailable::Internal("the disk failed".to_owned()));
    let mut stream = server.connect();
    stream.write_all(&request("GET", &format!("{PATH}/snapshot/5"), &[], b"")).expect("taken");
    let broken = Answer::try_read(&mut stream, "GET").expect_err("not whole");
    assert!(!broken.is_empty());
    fake.heal();
    assert_eq!(read(&server, 5, &[]).body.len(), 3 << 20);
}

#[test]
fn the_probe_of_a_gateway_reads_no_state() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    for stage in [Stage::Route, Stage::Read, Stage::Head] {
        fake.fail(stage, Unavailable::ApplyStopped);
    }
    let live = server.ask("GET", "/__ursula/live", &[], b"");
    assert_eq!((live.status, live.body.len()), (204, 0));
    assert!(fake.seen().is_empty());
}
