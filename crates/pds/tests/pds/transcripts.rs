//! Stories as transcripts: what an operator, owners and time do, and behind `>` what follows. `HIGHWATER_WRITE_TRANSCRIPTS=1` writes
//! what follows anew.
//!
//! Commits are called c1, c2, ... and trees d1, d2, ... in the order in which they first appear.

use crate::server::{Directory, Server, follower};
use highwater_consumer::Follower;
use highwater_consumer::follower::Output;
use highwater_consumer::frame::{Frame, Position};
use highwater_pds::boot;
use highwater_pds::boot::Warning;
use highwater_pds::cursor::Start;
use highwater_pds::lifecycle::{Announce, Change};
use highwater_pds::restore::Marker;
use highwater_repo::{Cid, Commit, Tid, car};
use std::path::Path;

/// Names for what has long ones.
#[derive(Default)]
struct Called {
    revs: Vec<Tid>,
    trees: Vec<Cid>,
}

fn called<T: PartialEq>(all: &mut Vec<T>, letter: char, value: T) -> String {
    let place = all.iter().position(|known| *known == value).unwrap_or_else(|| {
        all.push(value);
        all.len() - 1
    });
    format!("{letter}{}", place + 1)
}

struct Story {
    server: Server,
    copy: Option<Directory>,
    follower: Follower,
    called: Called,
    /// Frames of the wire that were told already.
    told: u64,
}

fn name(did: &highwater_repo::syntax::Did) -> String {
    did.as_str().trim_start_matches("did:web:").trim_end_matches(".pds.test").to_owned()
}

fn position(position: Position) -> &'static str {
    position.status().map_or("active", highwater_consumer::frame::Status::as_str)
}

impl Story {
    fn new() -> Self {
        let called = Called::default();
        Self { server: Server::new(), copy: None, follower: follower(), called, told: 0 }
    }

    fn rev(&mut self, rev: Tid) -> String {
        called(&mut self.called.revs, 'c', rev)
    }

    fn tree(&mut self, tree: Cid) -> String {
        called(&mut self.called.trees, 'd', tree)
    }

    fn frame(&mut self, frame: Frame) -> String {
        match frame {
            Frame::Commit(frame) => {
                let data = Commit::decode(block(&frame.blocks)).expect("a commit").data;
                let since = frame.since.map_or("none".to_owned(), |rev| self.rev(rev));
                let previous = frame.previous_data.map_or("none".to_owned(), |data| self.tree(data));
                let (data, rev) = (self.tree(data), self.rev(frame.rev));
                format!(
                    "{} #commit {} {rev} of {data}, since {since}, prevData {previous}",
                    frame.sequence,
                    name(&frame.did)
                )
            }
            Frame::Sync(frame) => {
                let data = Commit::decode(block(&frame.blocks)).expect("a commit").data;
                let (data, rev) = (self.tree(data), self.rev(frame.rev));
                format!("{} #sync {} {rev} of {data}", frame.sequence, name(&frame.did))
            }
            Frame::Identity(frame) => format!("{} #identity {}", frame.sequence, name(&frame.did)),
            Frame::Account(frame) => {
                format!("{} #account {} {}", frame.sequence, name(&frame.did), position(frame.position))
            }
            other => other.kind().to_owned(),
        }
    }

    /// Frames that were sent since the last command.
    fn sent(&mut self, out: &mut Vec<String>) {
        let new: Vec<_> = self.server.directory.events.iter().filter(|sent| sent.seq > self.told).cloned().collect();
        for sent in new {
            self.told = sent.seq;
            let line = self.frame(Frame::decode(sent.frame).expect("a frame"));
            out.push(line);
        }
    }

    fn run(&mut self, line: &str) -> Vec<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (before, mut out) = (self.server.directory.log.len(), Vec::new());
        match words[..] {
            ["create", name, how] => {
                let announce = match how {
                    "on-activation" => Some(Announce::OnActivation),
                    "on-first-write" => Some(Announce::OnFirstWrite),
                    _ => None,
                };
                self.server.create(name, announce);
            }
            ["write", name, key, number] => {
                let done = self.server.write(name, key, number.parse().expect("a number"));
                out.extend(done.err().map(|refused| format!("refused: {refused}")));
            }
            ["full"] => self.server.full = true,
            ["room"] => self.server.full = false,
            ["boot"] => self.boot(None, &mut out),
            ["boot", "dies", records] => self.boot(Some(records.parse().expect("a number")), &mut out),
            ["checkpoint"] => self.server.checkpoint(),
            ["forget", "announced"] => self.forget_announced(),
            ["copy"] => self.copy = Some(self.server.directory.clone()),
            ["put", "back"] => self.server.directory = self.copy.clone().expect("a copy was made"),
            ["mark"] => self.server.directory.marker = Some(Marker::default()),
            ["mark", "min_rev", name, seconds] => {
                let rev = self.server.account(name).head.expect("it has one").rev;
                let rev_min = Some(Tid::new(rev.micros() + seconds.parse::<u64>().expect("seconds") * 1_000_000, 0));
                self.server.directory.marker = Some(Marker { rev_min, ..Marker::default() });
            }
            ["clock", seconds] => {
                let by: i64 = seconds.parse().expect("seconds");
                self.server.now.0 = self.server.now.0.saturating_add_signed(by * 1_000_000);
            }
            ["resync"] => self.resync(),
            ["status", name] => out.push(self.status(name)),
            ["cursor", text] => out.push(self.cursor(text)),
            ["follow"] => self.follow(&mut out),
            [what, name] => {
                let change = match what {
                    "activate" => Change::Activate(Announce::OnActivation),
                    "lock" => Change::Lock,
                    "lift" => Change::Lift,
                    "takedown" => Change::TakeDown,
                    "restore" => Change::Restore,
                    "deactivate" => Change::Deactivate,
                    "reactivate" => Change::Reactivate,
                    "erase" => Change::Erase,
                    "decommission" => Change::Decommission,
                    _ => panic!("nobody knows how to {line}"),
                };
                let done = self.server.change(name, change);
                out.extend(done.err().map(|refused| format!("refused: {refused}")));
            }
            _ => panic!("nobody knows how to {line}"),
        }
        self.sent(&mut out);
        let quiet = matches!(words[0], "full" | "room" | "checkpoint" | "forget" | "copy" | "put" | "mark" | "clock");
        if out.is_empty() && !quiet {
            let stored = self.server.directory.log.len() > before;
            out.push(if stored { "stored, nothing sent" } else { "nothing" }.to_owned());
        }
        out
    }

    fn boot(&mut self, lives: Option<usize>, out: &mut Vec<String>) {
        self.server.lives = lives;
        match self.server.boot() {
            Ok(warnings) => out.extend(warnings.iter().map(|warning| match warning {
                Warning::ClockBehind(seconds) => format!("warning: the clock is {seconds} s behind"),
                other => format!("warning: {other:?}"),
            })),
            Err(stopped) => {
                self.sent(out);
                out.push(format!("stopped: {stopped:?}"));
            }
        }
        self.server.lives = None;
        self.sent(out);
        match self.server.directory.marker {
            Some(_) => out.push("the marker is still there".to_owned()),
            None if self.server.state.poke_pending => out.push("relays have to be asked to crawl".to_owned()),
            None => {}
        }
    }

    /// Rows as a server stored them that did not note what it announced.
    fn forget_announced(&mut self) {
        for account in self.server.state.accounts.values_mut() {
            account.announced = None;
        }
        self.server.checkpoint();
    }

    fn resync(&mut self) {
        let live: Vec<_> = boot::live(&self.server.state).cloned().collect();
        for account in live {
            let block = self.server.directory.blocks[&account.head.expect("it has one").commit].clone();
            let draft = boot::resync(&account, &block, self.server.now).expect("it is live");
            self.server.append(&draft).expect("it lives");
        }
    }

    fn status(&mut self, name: &str) -> String {
        let account = self.server.account(name).clone();
        let Some(position) = account.position() else { return "RepoNotFound".to_owned() };
        match (position, account.head) {
            (highwater_pds::Position::Active, Some(head)) => format!("active {}", self.rev(head.rev)),
            (highwater_pds::Position::Active, None) => "active".to_owned(),
            (highwater_pds::Position::Inactive(status), _) => status.as_str().to_owned(),
        }
    }

    fn cursor(&mut self, text: &str) -> String {
        let Ok(cursor) = highwater_pds::cursor::parse(text) else { return "400 InvalidRequest".to_owned() };
        let (start, frames) = self.server.subscribe(Some(cursor));
        match start {
            Start::Live => "live".to_owned(),
            Start::Future { ceiling } => format!("FutureCursor, above {ceiling}"),
            Start::Behind { seq, outdated } => {
                let info = if outdated { "OutdatedCursor, then " } else { "" };
                format!("{info}{} frames behind {seq}, then live", frames.len())
            }
        }
    }

    fn follow(&mut self, out: &mut Vec<String>) {
        for found in self.server.follow(&mut self.follower) {
            out.extend(match found {
                Output::Outdated => Some("told that its cursor is outdated".to_owned()),
                Output::Desynchronized { did, cause, .. } => Some(format!("{} lost: {cause:?}", name(&did))),
                Output::Resynchronized { did, rev } => {
                    let rev = self.rev(rev);
                    Some(format!("{} fetched at {rev}", name(&did)))
                }
                Output::Advanced { did, rev, .. } => {
                    let rev = self.rev(rev);
                    Some(format!("{} holds the same at {rev}", name(&did)))
                }
                _ => None,
            });
        }
        let held: Vec<_> = self
            .follower
            .accounts()
            .map(|(did, account)| {
                let stands = account.position().map_or("unheard of", position);
                (name(did), stands, account.head().map(|head| head.rev), account.records().map(|records| records.len()))
            })
            .collect();
        for (name, stands, rev, records) in held {
            let rev = rev.map_or("none".to_owned(), |rev| self.rev(rev));
            let records = records.map_or("no records".to_owned(), |records| format!("{records} records"));
            out.push(format!("{name} is {stands} at {rev} with {records}"));
        }
        // Whatever was announced agrees with what a relay would be answered now.
        for account in self.server.state.accounts.values() {
            let said = self.follower.account(&account.did).and_then(|held| held.position().map(position));
            let told = account.announced.map(|position| match position {
                highwater_pds::Position::Active => "active",
                highwater_pds::Position::Inactive(status) => status.as_str(),
            });
            assert_eq!(said, told, "{} as it was announced", account.did);
        }
    }
}

/// The first block of an archive: the commit's.
fn block(archive: &bytes::Bytes) -> bytes::Bytes {
    let mut reader = car::Reader::new();
    reader.push(archive);
    reader.block().expect("whole").expect("a block").1
}

fn check(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pds/transcripts").join(name).with_extension("txt");
    let script = std::fs::read_to_string(&path).expect("the transcript is there");
    let (mut story, mut found) = (Story::new(), String::new());
    for line in script.lines().filter(|line| !line.starts_with('>')) {
        found.push_str(line);
        found.push('\n');
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        // Nothing happens at the same microsecond.
        story.server.now.0 += 1_000;
        for told in story.run(line) {
            found.push_str(&format!("> {told}\n"));
        }
    }
    if std::env::var_os("HIGHWATER_WRITE_TRANSCRIPTS").is_some() {
        std::fs::write(&path, &found).expect("written");
    }
    assert_eq!(found, script, "{name}");
}

#[test]
fn accounts_live_and_end() {
    check("accounts");
}

#[test]
fn a_change_without_room_for_its_frames_bites_and_is_told_later() {
    check("no_room");
}

#[test]
fn an_account_that_is_announced_with_its_first_write() {
    check("first_write");
}

#[test]
fn a_start_tells_what_changed_and_nothing_else() {
    check("boot");
}

#[test]
fn a_restore_takes_back_what_the_lost_run_told() {
    check("restore");
}

#[test]
fn a_restore_that_dies_goes_on_where_it_was() {
    check("restore_resumed");
}

#[test]
fn cursors_begin_where_the_rules_say() {
    check("cursors");
}
