//! Every answer that a write can get, driven through a server and read with the published parsers.
//!
//! The table below holds each row of the published inventory: driven, or why not. A row that is missing fails.

use crate::fake::{Fake, Stage, digest, snapshot_digest};
use crate::wire::{Answer, Server, request};
use highwater_node::Unavailable;
use highwater_stream::machine::Options;
use std::collections::BTreeSet;
use std::io::Write;
use ursula_headers::answer::{Delivery, ProducerAnswer};
use ursula_headers::error_body::ErrorBody;
use ursula_headers::limit::{SizeLimit, StagedPartsLimit};
use ursula_headers::refusal::{IncarnationMismatch, StreamClosedConflict, StreamSeqConflict};
use ursula_headers::routing::RoutingAnswer;
use ursula_headers::snapshot::{PartStaged, SnapshotPublishAnswer};
use ursula_headers::write_outcome::classify;
use ursula_headers::write_outcome::inventory::{INVENTORY, ProducerShape, Row, Shape, Source, row};

/// What is done about a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Driven against every server.
    Driven,
    /// Driven against a node that plays faults; a healthy one never sends it.
    Played,
    /// Never sent by this server.
    Foreign(&'static str),
}

const GATEWAY: Fate = Fate::Foreign("a gateway's answer");
const COLD: Fate = Fate::Foreign("there is no cold store on the write path");
const OTHER: Fate = Fate::Foreign("the answer of a layer that is not a server of this contract");

const FATES: &[(&str, Fate)] = &[
    ("append-applied", Fate::Driven),
    ("append-repeat", Fate::Driven),
    ("append-receipt-evicted", Fate::Driven),
    ("append-keyless", Fate::Driven),
    ("close-keyless", Fate::Driven),
    ("create-new", Fate::Driven),
    ("create-matching", Fate::Driven),
    ("snapshot-published", Fate::Driven),
    ("part-staged", Fate::Driven),
    ("parts-discarded", Fate::Driven),
    ("retention-advanced", Fate::Driven),
    ("stream-deleted", Fate::Driven),
    ("bucket-created", Fate::Foreign("buckets appear on first use")),
    ("parts-commit-published", Fate::Driven),
    ("redirect", Fate::Played),
    ("producer-epoch-closed", Fate::Driven),
    ("producer-stale-epoch", Fate::Driven),
    ("producer-key-conflict", Fate::Driven),
    ("producer-expired", Fate::Played),
    ("producer-seq-gap", Fate::Driven),
    ("producer-epoch-not-claimed", Fate::Driven),
    ("bad-request", Fate::Driven),
    ("not-found", Fate::Driven),
    ("stream-closed", Fate::Driven),
    ("stream-seq-conflict", Fate::Driven),
    ("snapshot-conflict", Fate::Driven),
    ("conflict", Fate::Driven),
    ("gone", Fate::Driven),
    ("incarnation-mismatch", Fate::Driven),
    ("too-large", Fate::Driven),
    ("producer-limit", Fate::Played),
    ("staged-parts-limit", Fate::Played),
    ("no-cold-store", COLD),
    ("no-leader-before-body", Fate::Played),
    ("no-leader-before-proposal", Fate::Played),
    ("leadership-lost-after-proposal", Fate::Played),
    ("outcome-unknown", Fate::Played),
    ("wal-disk-pressure", Fate::Played),
    ("raft-log-pressure", Fate::Played),
    ("ingress-body-budget", Fate::Played),
    ("cold-backpressure", Fate::Played),
    ("raft-uncommitted-backpressure", Fate::Played),
    ("history-pending", Fate::Played),
    ("apply-stopped", Fate::Played),
    ("group-restarting", Fate::Played),
    ("json-boundary-unverified", Fate::Played),
    ("snapshot-commits-busy", Fate::Played),
    ("snapshot-commit-in-progress", Fate::Played),
    ("internal", Fate::Played),
    ("cold-store-failed", COLD),
    ("gateway-invalid-credential", GATEWAY),
    ("gateway-forbidden", GATEWAY),
    ("gateway-concealed", GATEWAY),
    ("gateway-too-large", GATEWAY),
    ("gateway-rate-limited", GATEWAY),
    ("gateway-uploads-exhausted", GATEWAY),
    ("gateway-upload-bytes-exhausted", GATEWAY),
    ("gateway-upload-budget-exhausted", GATEWAY),
    ("gateway-body-too-slow", GATEWAY),
    ("gateway-authentication-unavailable", GATEWAY),
    ("gateway-authorization-unavailable", GATEWAY),
    ("gateway-no-upstream", GATEWAY),
    ("gateway-upstream-unreachable", GATEWAY),
    ("gateway-no-leader", GATEWAY),
    ("gateway-upstream-failed", GATEWAY),
    ("gateway-upstream-timeout", GATEWAY),
    ("embedder-payment-required", GATEWAY),
    ("embedder-account-revoked", GATEWAY),
    ("embedder-forbidden", GATEWAY),
    ("embedder-rate-limited", GATEWAY),
    ("foreign-4xx", OTHER),
    ("foreign-408", OTHER),
    ("foreign-5xx", OTHER),
    ("keyed-2xx-without-receipt", OTHER),
    ("keyless-2xx-untyped", OTHER),
    ("transport-failure", OTHER),
];

#[test]
fn every_row_of_the_inventory_has_a_fate() {
    let known: BTreeSet<&str> = FATES.iter().map(|(id, _)| *id).collect();
    let published: BTreeSet<&str> = INVENTORY.iter().map(|row| row.id).collect();
    assert_eq!(known.len(), FATES.len(), "a row is listed twice");
    assert_eq!(known, published);
    for (id, fate) in FATES {
        let node = row(id).expect("a published row").source == Source::Node;
        match fate {
            Fate::Foreign(why) => assert!(!why.is_empty()),
            Fate::Driven | Fate::Played => assert!(node, "{id} is not a server's answer"),
        }
    }
}

#[test]
fn every_row_that_applies_is_answered_as_published() {
    for (id, fate) in FATES {
        if matches!(fate, Fate::Driven | Fate::Played) {
            // One producer, so that a second one is too many; and as many parts as a commit needs.
            let staged_parts_max = if *id == "staged-parts-limit" { 1 } else { 2 };
            let fake = Fake::with(Options { producers_max: 1, staged_parts_max, ..Options::default() });
            let server = Server::start(fake.clone());
            let answer = Driver { server: &server }.drive(id).unwrap_or_else(|| play(&server, &fake, id));
            check(row(id).expect("a published row"), &answer);
        }
    }
}

/// Compares an answer with its row, by the published parsers.
pub fn check(row: &Row, answer: &Answer) {
    let id = row.id;
    assert_eq!(answer.status, row.status, "{id}: {answer:?}");
    assert_eq!(
        classify(row.write.kind(), answer.status, answer.pairs(), &answer.body),
        row.outcome,
        "{id}: {answer:?}"
    );
    match &row.code {
        Some(code) => {
            let body = ErrorBody::parse(&answer.body).expect(id);
            assert_eq!(&body.code, code, "{id}");
            assert_eq!(answer.header("content-type"), Some(ErrorBody::CONTENT_TYPE), "{id}");
            assert_eq!(answer.header("cache-control"), Some("no-store"), "{id}");
            assert_eq!(answer.header("highwater-durability"), None, "{id}: nothing was written");
        }
        None => {
            assert_eq!(answer.body, b"", "{id}");
            let durability = (row.status < 300).then_some("synced=1, of=1");
            assert_eq!(answer.header("highwater-durability"), durability, "{id}");
        }
    }
    let status = answer.status;
    match row.shape {
        Shape::Plain => {
            assert_eq!(ProducerAnswer::parse(status, answer.pairs()), Ok(None), "{id}");
            assert!(RoutingAnswer::parse(status, answer.pairs()).is_ok_and(|routing| routing.is_none()), "{id}");
        }
        Shape::Producer(shape) => {
            let parsed = ProducerAnswer::parse(status, answer.pairs()).expect(id).expect(id);
            assert!(is_shape(shape, &parsed), "{id}: {parsed:?}");
        }
        Shape::Keyless { closes } => {
            assert!(answer.header("stream-next-offset").is_some_and(|offset| offset.len() == 20), "{id}");
            assert_eq!(answer.header("stream-closed"), closes.then_some("true"), "{id}");
        }
        Shape::Created => {
            assert!(answer.header("stream-incarnation").is_some(), "{id}");
            let tells_its_end = id.starts_with("create");
            assert_eq!(answer.header("stream-next-offset").is_some(), tells_its_end, "{id}");
        }
        Shape::NoLeader => {
            assert!(
                matches!(RoutingAnswer::parse(status, answer.pairs()), Ok(Some(RoutingAnswer::NoLeader { .. }))),
                "{id}"
            );
            assert_eq!(answer.header("retry-after"), Some("1"), "{id}");
        }
        Shape::StreamClosed => {
            assert!(matches!(StreamClosedConflict::parse(status, answer.pairs()), Ok(Some(_))), "{id}: {answer:?}");
        }
        Shape::StreamSeqConflict => {
            let parsed = StreamSeqConflict::parse(status, answer.pairs()).expect(id).expect(id);
            assert_eq!(parsed.last.as_str(), "7", "{id}");
        }
        Shape::IncarnationMismatch => {
            let parsed = IncarnationMismatch::parse(status, answer.pairs()).expect(id).expect(id);
            assert!(parsed.current.is_some(), "{id}");
        }
        Shape::SizeLimit => {
            assert_eq!(SizeLimit::parse(status, answer.pairs()), Ok(Some(SizeLimit::Request(33_554_432))), "{id}");
        }
        Shape::SnapshotPublished => {
            let parsed = SnapshotPublishAnswer::parse(status, answer.pairs()).expect(id).expect(id);
            assert!(matches!(parsed, SnapshotPublishAnswer::Published { .. }), "{id}: {parsed:?}");
        }
        Shape::SnapshotConflict => {
            let parsed = SnapshotPublishAnswer::parse(status, answer.pairs()).expect(id).expect(id);
            assert!(matches!(parsed, SnapshotPublishAnswer::Conflict { .. }), "{id}: {parsed:?}");
        }
        Shape::PartStaged => {
            PartStaged::parse(answer.pairs()).expect(id);
        }
        Shape::StagedPartsLimit => {
            assert!(matches!(StagedPartsLimit::parse(status, answer.pairs()), Ok(Some(_))), "{id}: {answer:?}");
            assert!(answer.header("stream-incarnation").is_some(), "{id}");
            assert_eq!(answer.header("retry-after"), None, "{id}");
        }
        Shape::Retained => {
            assert!(answer.header("stream-retained-offset").is_some_and(|offset| offset.len() == 20), "{id}");
            assert!(answer.header("stream-incarnation").is_some(), "{id}");
        }
        Shape::Redirect => {
            let parsed = RoutingAnswer::parse(status, answer.pairs()).expect(id).expect(id);
            assert!(matches!(parsed, RoutingAnswer::NotLeader { .. }), "{id}: {parsed:?}");
            assert_eq!(answer.header("location"), Some("http://10.0.0.2:4437/v1/stream/app/db"), "{id}");
        }
    }
}

fn is_shape(shape: ProducerShape, answer: &ProducerAnswer) -> bool {
    use ProducerAnswer as A;
    match shape {
        ProducerShape::Applied => matches!(answer, A::Receipt { delivery: Delivery::Applied, .. }),
        ProducerShape::Repeat => matches!(answer, A::Receipt { delivery: Delivery::Repeat, .. }),
        ProducerShape::ReceiptEvicted => matches!(answer, A::ReceiptEvicted { .. }),
        ProducerShape::EpochClosed => matches!(answer, A::EpochClosed(_)),
        ProducerShape::StaleEpoch => matches!(answer, A::StaleEpoch { .. }),
        ProducerShape::KeyConflict => matches!(answer, A::KeyConflict { .. }),
        ProducerShape::Expired => matches!(answer, A::ProducerExpired { .. }),
        ProducerShape::SeqGap => matches!(answer, A::SeqGap { .. }),
        ProducerShape::EpochNotClaimed => matches!(answer, A::EpochNotClaimed),
    }
}

/// Drives the rows that a healthy server sends.
pub struct Driver<'a> {
    pub server: &'a Server,
}

const PATH: &str = "/v1/stream/app/db";
const TYPE: (&str, &str) = ("content-type", "application/vnd.ursula.sqlite-vfs.v2");

impl Driver<'_> {
    /// The rows that [`Self::drive`] knows.
    pub fn rows() -> impl Iterator<Item = &'static str> {
        FATES.iter().filter(|(_, fate)| *fate == Fate::Driven).map(|(id, _)| *id)
    }

    /// Makes the stream, or finds it; its token.
    pub fn create(&self) -> String {
        let answer = self.server.ask("PUT", PATH, &[TYPE], b"");
        assert!(matches!(answer.status, 200 | 201), "{answer:?}");
        answer.header("stream-incarnation").expect("a token").to_owned()
    }

    fn post(&self, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.server.ask("POST", PATH, &[&[TYPE], headers].concat(), body)
    }

    /// A tokened keyed append, as the replicator sends it.
    pub fn keyed(&self, token: &str, epoch: u64, seq: u64, body: &[u8]) -> Answer {
        let (epoch, seq, digest) = (epoch.to_string(), seq.to_string(), digest(body));
        let key = [
            ("producer-id", "sqlite-ursula-vfs/2"),
            ("producer-epoch", epoch.as_str()),
            ("producer-seq", seq.as_str()),
            ("producer-digest", digest.as_str()),
            ("stream-incarnation", token),
        ];
        self.post(&key, body)
    }

    /// Appends `keys` one after the other, and gives the answer to the last.
    fn keys(&self, keys: &[(u64, u64)]) -> Answer {
        let token = self.create();
        let mut answer = None;
        for (epoch, seq) in keys {
            answer = Some(self.keyed(&token, *epoch, *seq, format!("{epoch}.{seq}").as_bytes()));
        }
        answer.expect("a key")
    }

    /// Publishes a snapshot of a stream of three bytes.
    fn published(&self, body: &[u8]) -> Answer {
        self.create();
        self.post(&[], b"abc");
        self.server.ask("PUT", &format!("{PATH}/snapshot/3"), &[TYPE], body)
    }

    fn stage(&self, body: &[u8]) -> Answer {
        self.server.ask("POST", &format!("{PATH}/snapshot/0/parts"), &[], body)
    }

    /// Publishes a snapshot of two staged parts.
    fn commit(&self) -> Answer {
        self.create();
        let id = |body| self.stage(body).header("stream-snapshot-part").unwrap_or("never-staged").to_owned();
        let list = format!("{}\n{}\n", id(b"one, "), id(b"two"));
        let digest = snapshot_digest(TYPE.1, b"one, two");
        let headers = [TYPE, ("stream-snapshot-parts", "2"), ("stream-snapshot-digest", &digest)];
        self.server.ask("PUT", &format!("{PATH}/snapshot/0"), &headers, list.as_bytes())
    }

    /// Provokes a row; `None` for one that needs a fault.
    pub fn drive(&self, id: &str) -> Option<Answer> {
        Some(match id {
            "append-applied" => self.keys(&[(1, 0)]),
            "append-repeat" => self.keys(&[(1, 0), (1, 1), (1, 1)]),
            "append-receipt-evicted" => self.keys(&[(1, 0), (1, 1), (1, 2), (1, 1)]),
            "append-keyless" => {
                self.create();
                self.post(&[], b"x")
            }
            "close-keyless" => {
                self.create();
                self.post(&[("stream-closed", "true")], b"")
            }
            "create-new" => self.server.ask("PUT", PATH, &[TYPE], b""),
            "create-matching" => {
                self.create();
                self.server.ask("PUT", PATH, &[TYPE], b"")
            }
            "stream-deleted" => {
                self.create();
                self.server.ask("DELETE", PATH, &[], b"")
            }
            "snapshot-published" => self.published(b"a snapshot"),
            "snapshot-conflict" => {
                self.published(b"a snapshot");
                self.server.ask("PUT", &format!("{PATH}/snapshot/3"), &[TYPE], b"another one")
            }
            "part-staged" => {
                self.create();
                self.stage(b"a part")
            }
            "parts-discarded" => {
                self.create();
                self.stage(b"a part");
                self.server.ask("DELETE", &format!("{PATH}/snapshot/parts"), &[], b"")
            }
            "parts-commit-published" => self.commit(),
            "retention-advanced" => {
                self.published(b"a snapshot");
                self.server.ask("PUT", &format!("{PATH}/retention/3"), &[], b"")
            }
            "gone" => {
                self.published(b"a snapshot");
                self.server.ask("PUT", &format!("{PATH}/retention/3"), &[], b"");
                self.server.ask("PUT", &format!("{PATH}/snapshot/2"), &[TYPE], b"an older one")
            }
            "producer-epoch-closed" => self.keys(&[(1, 0), (1, 1), (2, 0), (1, 2)]),
            "producer-stale-epoch" => self.keys(&[(1, 0), (2, 0), (3, 0), (1, 1)]),
            "producer-key-conflict" => {
                let token = self.create();
                self.keyed(&token, 1, 0, b"one");
                self.keyed(&token, 1, 0, b"other")
            }
            "producer-seq-gap" => self.keys(&[(1, 0), (1, 1), (1, 5)]),
            "producer-epoch-not-claimed" => self.keys(&[(1, 0), (2, 3)]),
            "bad-request" => {
                self.create();
                self.post(&[], b"")
            }
            "not-found" => self.keyed("4503599627370497", 1, 0, b"x"),
            "stream-closed" => {
                let token = self.create();
                self.post(&[("stream-closed", "true")], b"");
                self.keyed(&token, 1, 0, b"x")
            }
            "stream-seq-conflict" => {
                self.create();
                self.post(&[("stream-seq", "7")], b"x");
                self.post(&[("stream-seq", "7")], b"x")
            }
            "conflict" => {
                self.create();
                self.server.ask("POST", PATH, &[("content-type", "text/plain")], b"x")
            }
            "incarnation-mismatch" => {
                self.create();
                self.keyed("7", 1, 0, b"x")
            }
            "too-large" => {
                let mut stream = self.server.connect();
                let head = request("POST", PATH, &[TYPE, ("content-length", "33554433")], b"");
                stream.write_all(&head).expect("the head is taken");
                Answer::read(&mut stream, "POST")
            }
            _ => return None,
        })
    }
}

/// Drives the rows that take a fault or a long time.
fn play(server: &Server, fake: &Fake, id: &str) -> Answer {
    let driver = Driver { server };
    let token = driver.create();
    let claimed = driver.keyed(&token, 5, 0, b"claim");
    assert_eq!(claimed.status, 200);
    let (stage, fault) = match id {
        "producer-expired" => {
            fake.pass(8 * 24 * 3_600_000);
            return driver.keyed(&token, 5, 1, b"late");
        }
        "producer-limit" => {
            let key = [("producer-id", "second"), ("producer-epoch", "1"), ("producer-seq", "0")];
            return driver.post(&key, b"x");
        }
        "staged-parts-limit" => {
            driver.stage(b"one");
            return driver.stage(b"one too many");
        }
        "snapshot-commits-busy" => {
            fake.fail(Stage::Commit, Unavailable::SnapshotCommitsBusy);
            return driver.commit();
        }
        "snapshot-commit-in-progress" => {
            fake.fail(Stage::Commit, Unavailable::SnapshotCommitInProgress);
            return driver.commit();
        }
        "json-boundary-unverified" => {
            server.ask("DELETE", PATH, &[], b"");
            server.ask("PUT", PATH, &[("content-type", "application/json")], b"[1]");
            fake.fail(Stage::Read, Unavailable::Internal("the bytes are somewhere else".to_owned()));
            return server.ask("PUT", &format!("{PATH}/snapshot/2"), &[TYPE], b"one");
        }
        "redirect" => {
            let url = "http://10.0.0.2:4437".to_owned();
            fake.fail(Stage::Route, Unavailable::LedElsewhere { group: 3, leader: 2, term: 7, url });
            return driver.keyed(&token, 5, 1, b"next");
        }
        "no-leader-before-body" => (Stage::Route, Unavailable::NoLeader { group: 3 }),
        "no-leader-before-proposal" => (Stage::Write, Unavailable::NoLeader { group: 3 }),
        "leadership-lost-after-proposal" => (Stage::Write, Unavailable::OutcomeUnknown { leadership_lost: true }),
        "outcome-unknown" => (Stage::Write, Unavailable::OutcomeUnknown { leadership_lost: false }),
        "wal-disk-pressure" => (Stage::Admit, Unavailable::WalDiskPressure),
        "cold-backpressure" => (Stage::Write, Unavailable::ColdStoreUnreachable),
        "raft-log-pressure" => (Stage::Write, Unavailable::RaftLogPressure),
        "ingress-body-budget" => (Stage::Admit, Unavailable::IngressBodyBytesLimit),
        "raft-uncommitted-backpressure" => (Stage::Admit, Unavailable::RaftUncommittedBackpressure),
        "history-pending" => (Stage::Route, Unavailable::HistoryPending),
        "apply-stopped" => (Stage::Write, Unavailable::ApplyStopped),
        "group-restarting" => (Stage::Route, Unavailable::GroupRestarting),
        "internal" => (Stage::Write, Unavailable::Internal("a fault".to_owned())),
        other => panic!("nothing plays {other}"),
    };
    let temporary = !matches!(
        fault,
        Unavailable::ApplyStopped | Unavailable::OutcomeUnknown { leadership_lost: false } | Unavailable::Internal(_)
    );
    fake.fail(stage, fault);
    let answer = driver.keyed(&token, 5, 1, b"next");
    assert_eq!(answer.header("retry-after"), temporary.then_some("1"), "{id}");
    answer
}
