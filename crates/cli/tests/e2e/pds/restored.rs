//! An older copy of a server of accounts takes its place, and its consumers end with what it holds.

use super::consumer::Consumer;
use super::{Account, base, create, get, newest, operate};
use crate::bed::{Server, copy_folder, folder, highwater, text};
use highwater_base::random::SplitMix;
use highwater_consumer::follower::Output;
use highwater_disk::{OsDisk, SystemClock};
use highwater_host::{Host, NewAccount, Options, Seams};
use highwater_repo::key::Curve;
use serde_json::Value;
use std::fs;
use std::sync::Arc;

/// A server that lived on behind a copy of itself, whose consumer heard of all of it.
struct Lost {
    server: Server,
    consumer: Consumer,
    accounts: Vec<Account>,
    copy: std::path::PathBuf,
    /// What the copy holds of each account.
    kept: Vec<std::collections::BTreeMap<String, bytes::Bytes>>,
    /// Where the lost run ended.
    cursor: u64,
}

fn lost(folder: &std::path::Path) -> Lost {
    let mut server = Server::start(folder);
    let accounts: Vec<Account> = (0..3).map(|_| create(&server, &[])).collect();
    for (number, account) in accounts.iter().enumerate() {
        account.write(&server, "kept", &format!("kept {number}"));
        account.write(&server, "kept-too", "to be deleted by the lost run");
    }
    operate(&server, &["account", "lock", &accounts[2].did]);
    let mut consumer = Consumer::new(&server);
    consumer.connect();
    consumer.read_to(newest(&server));
    let kept = accounts.iter().map(|account| consumer.holds(&account.did).0).collect();
    server.terminate();
    let copy = folder.join("copy");
    copy_folder(&server.data, &copy);
    server.restart();
    for account in &accounts[..2] {
        account.write(&server, "lost", "lost");
        account.write(&server, "kept", "changed by the lost run");
        account.delete(&server, "kept-too");
    }
    consumer.connect();
    consumer.read_to(newest(&server));
    let cursor = consumer.cursor();
    let held = consumer.holds(&accounts[0].did).0;
    assert!(held.keys().any(|key| key.ends_with("/lost")) && held.len() == 2, "{held:?}");
    server.kill();
    fs::remove_dir_all(&server.data).expect("it is lost");
    copy_folder(&copy, &server.data);
    Lost { server, consumer, accounts, copy, kept, cursor }
}

/// The seed's exit criterion. `again` starts the server a second time before the consumer reads what the restore sent.
fn drill(again: bool) {
    let folder = folder();
    let Lost { mut server, mut consumer, accounts, copy, kept, cursor } = lost(folder.path());
    let before: Vec<_> = accounts.iter().map(|account| consumer.holds(&account.did).1).collect();
    let marked = highwater(["pds", "mark-restored", "--data", text(&server.data)]).ok();
    assert!(marked.contains("marked as restored") && marked.contains("highwater pds announce"), "{marked}");
    server.restart();
    assert!(server.log().contains("highwater pds announce"), "the start says what is left to do");
    if again {
        server.kill();
        server.restart();
        server.terminate();
        server.restart();
    }
    assert!(!server.data.join("pds/pds.restored").exists(), "the mark is gone");
    let status = operate(&server, &["status"]);
    let first = status["stream"]["gaps"][0][1].as_u64().expect("a gap");
    assert!(first >= 1_000_000_000_000 && first > cursor, "the first number is above all of the lost run's: {status}");
    assert_eq!((&status["restore"]["done"], &status["restore"]["accounts"]), (&true.into(), &3.into()), "{status}");
    let report = fs::read_to_string(status["restore"]["report"].as_str().expect("a file")).expect("the report");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let listed: Vec<_> = report["active"].as_array().expect("a list").iter().map(|one| one["did"].clone()).collect();
    assert!(listed.contains(&accounts[0].did.clone().into()) && listed.len() == 2, "{report}");

    let told = consumer.found.len();
    consumer.connect();
    consumer.read_to(newest(&server));
    assert_eq!(consumer.found[told], Output::Outdated, "never FutureCursor");
    for ((account, kept), before) in accounts.iter().zip(&kept).zip(&before) {
        let (held, rev) = consumer.holds(&account.did);
        if account.did != accounts[2].did {
            assert_eq!(held, *kept, "the restored records");
            assert!(rev > *before, "a newer revision");
        }
    }
    assert_eq!(consumer.position(&accounts[2].did), (false, Some("suspended")));
    // A session of the copy's time goes on, and what it writes follows the commit that the restore made.
    let told = consumer.found.len();
    accounts[0].write(&server, "after", "after the restore");
    operate(&server, &["account", "lift", &accounts[2].did]);
    accounts[2].write(&server, "after", "after the lift");
    consumer.read_to(newest(&server));
    let torn = consumer.found[told..]
        .iter()
        .find(|found| matches!(found, Output::Desynchronized { did, .. } if did.as_str() == accounts[0].did));
    assert!(torn.is_none(), "{torn:?}");
    assert!(consumer.holds(&accounts[0].did).0.contains_key(&format!("{}/after", super::NOTES)));
    assert!(consumer.holds(&accounts[2].did).0.contains_key(&format!("{}/after", super::NOTES)));
    assert_eq!(accounts[0].note(&server, "lost"), None);
    assert_eq!(accounts[0].note(&server, "kept").as_deref(), Some("kept 0"));
    highwater(["pds", "verify", text(&copy)]).ok();
}

#[test]
fn a_consumer_of_the_lost_run_ends_with_the_restored_records_at_newer_revisions() {
    drill(false);
}

/// What a restore sends used to be a matter of one run: a second start before anybody read it lost it.
#[test]
fn a_second_start_before_anybody_read_what_a_restore_sends_loses_none_of_it() {
    drill(true);
}

/// Without the mark a lost run's cursor lies above every number: it is refused, and the log names the step.
#[test]
fn a_copy_without_the_mark_says_what_was_forgotten_when_a_consumer_comes_from_ahead() {
    let folder = folder();
    let Lost { mut server, consumer, .. } = lost(folder.path());
    server.restart();
    let url = format!("{}/xrpc/com.atproto.sync.subscribeRepos?cursor={}", base(&server), consumer.cursor());
    let refused = highwater(["pds", "follow", &base(&server), "--cursor", &consumer.cursor().to_string()]);
    refused.fails(1, &["FutureCursor"]);
    assert!(server.log().contains("highwater pds mark-restored"), "{url}: {}", server.log());
}

/// One word of the operator's is for streams and accounts.
#[test]
fn marking_the_whole_directory_marks_its_accounts_too() {
    let folder = folder();
    let Lost { mut server, mut consumer, accounts, .. } = lost(folder.path());
    let marked = highwater(["mark-restored", "--data", text(&server.data), "--json"]).json();
    assert!(marked["pds"].is_string(), "{marked}");
    server.restart();
    consumer.connect();
    consumer.read_to(newest(&server));
    assert_eq!(accounts[1].note(&server, "lost"), None);
    assert!(!consumer.holds(&accounts[1].did).0.keys().any(|key| key.ends_with("/lost")));
    highwater(["pds", "mark-restored", "--data", text(&server.data)]).fails(5, &["in use"]);
    highwater(["pds", "mark-restored", "--data", text(&folder.path().join("none"))]).fails(3, &["no accounts"]);
    highwater(["pds", "mark-restored", "--data", text(&server.data), "--min-rev", "x"]).fails(2, &["--min-rev"]);
}

/// Frames of a start that nobody could have read yet are no live frames: whoever comes reads all of them.
#[test]
fn more_frames_than_memory_holds_that_a_start_numbered_reach_a_consumer_that_comes_later() {
    const ACCOUNTS: usize = 2_100;
    let folder = folder();
    let mut server = Server::start(folder.path());
    server.terminate();
    let directory = server.data.join("pds");
    let seams = Seams {
        disk: Arc::new(OsDisk::private_in(&directory)),
        clock: Arc::new(SystemClock::new()),
        random: Box::new(SplitMix::new(7)),
        sealer: None,
    };
    let options = Options::new(&directory, format!("localhost:{}", server.port));
    let (host, worker, _) = Host::open(options, seams).expect("it opens");
    let running = worker.spawn().expect("threads");
    let new = || NewAccount { handle: None, password_hash: None, curve: Curve::K256, activate: true };
    let waiting: Vec<_> = (0..ACCOUNTS).map(|_| host.create_account(new())).collect();
    for waiting in waiting {
        waiting.wait().expect("it is made");
    }
    drop(host);
    running.stop().expect("it stops");
    server.restart();
    let before = newest(&server);
    server.terminate();
    highwater(["pds", "mark-restored", "--data", text(&server.data)]).ok();
    server.restart();
    let newest = newest(&server);
    let behind = before.to_string();
    let read =
        highwater(["pds", "follow", &base(&server), "--cursor", &behind, "--until", &newest.to_string(), "--json"])
            .ok();
    let count = |event: &str| read.lines().filter(|line| line.contains(&format!("\"event\":\"{event}\""))).count();
    assert_eq!(count("account"), ACCOUNTS);
    assert_eq!((count("violation"), count("refused")), (0, 0));
    assert!(server.log().contains("relays accept 100"), "accounts beyond what relays take are warned of");
}

/// The restore drill: every repository that is listed is listed at a newer commit, over the records that the copy held.
#[test]
fn after_a_restore_every_repository_is_listed_at_a_newer_head_over_the_same_records() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let accounts: Vec<Account> = (0..3).map(|_| create(&server, &[])).collect();
    accounts.iter().for_each(|account| account.write(&server, "kept", "kept"));
    let listed = |server: &Server| {
        let (status, said) = get(server, "com.atproto.sync.listRepos");
        assert_eq!(status, 200, "{said}");
        let repos = said["repos"].as_array().cloned().unwrap_or_default();
        assert_eq!(repos.len(), accounts.len());
        let text = |repo: &Value, name: &str| repo[name].as_str().expect("it is there").to_owned();
        repos.iter().map(|repo| (text(repo, "did"), text(repo, "head"), text(repo, "rev"))).collect::<Vec<_>>()
    };
    let records = |server: &Server, account: &Account| {
        let query = format!("com.atproto.repo.listRecords?repo={}&collection={}", account.query(), super::NOTES);
        get(server, &query).1["records"].clone()
    };
    let (before, held) =
        (listed(&server), accounts.iter().map(|account| records(&server, account)).collect::<Vec<_>>());
    server.terminate();
    let copy = folder.path().join("copy");
    copy_folder(&server.data, &copy);
    server.restart();
    accounts.iter().for_each(|account| account.write(&server, "lost", "lost"));
    let lost = listed(&server);
    server.kill();
    fs::remove_dir_all(&server.data).expect("it is lost");
    copy_folder(&copy, &server.data);
    highwater(["pds", "mark-restored", "--data", text(&server.data)]).ok();
    server.restart();
    for (((did, head, rev), before), lost) in listed(&server).into_iter().zip(before).zip(lost) {
        assert!(did == before.0 && head != before.1 && head != lost.1, "another commit");
        assert!(rev > before.2 && rev > lost.2, "newer than the copy's and than the lost run's");
    }
    let now: Vec<_> = accounts.iter().map(|account| records(&server, account)).collect();
    assert!(now == held && now.iter().all(|records| records.as_array().is_some_and(|list| list.len() == 1)), "{now:?}");
}
