//! What the network's relay makes of a server, in virtual time.

use crate::network::{Network, account, dids, sync};
use crate::stream::{BEGIN, Server, create, did, update};
use highwater_base::Millis;
use highwater_consumer::frame::{Position, Status};
use highwater_consumer::relay::{Dropped, HostStatus, Input, Output, Relay, Verdict};
use highwater_repo::Tid;
use std::collections::BTreeSet;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

fn rev(ms: u64) -> Tid {
    Tid::new((BEGIN.0 + ms) * 1_000, 0)
}

/// A relay that has read a host before and finds it restored with so many accounts; returns the milliseconds until every
/// message was processed.
fn restored(accounts: usize, limit: u64, begin: Millis) -> (Network, u64) {
    let mut network = Network::new(Relay::resuming(begin, limit, 5_000), begin);
    network.ceiling = 4_000;
    let dids = dids(accounts);
    network.restore(&dids, rev(0));
    let last = network.ceiling;
    for minute in 1..=300 {
        network.run_until(begin.0 + minute * MINUTE);
        // Agents go on writing, a little.
        network.publish(|sequence| account(&dids[minute as usize], sequence, Position::ACTIVE));
        let done: BTreeSet<u64> = network.verdicts().into_iter().map(|(sequence, _)| sequence).collect();
        if network.relay.host().1 >= last {
            let missing = network.window.range(..=last).find(|(sequence, _)| !done.contains(sequence));
            assert_eq!(missing.map(|(sequence, _)| sequence), None, "a message was passed over");
            let took = network.outputs.iter().rev().find_map(|(at, output)| match output {
                Output::Processed { sequence, .. } if *sequence == last => Some(at - begin.0),
                _ => None,
            });
            return (network, took.expect("it was processed"));
        }
    }
    panic!(
        "it is at {:?} of {last} after five hours, having dialed {} times",
        network.relay.host(),
        network.dials().len()
    );
}

/// A thousand accounts are 2,000 messages: the relay's limit per second lets them pass in 40 s and a little.
#[test]
fn a_restore_of_a_thousand_accounts_is_read_in_under_a_minute() {
    let (network, took) = restored(1_000, 100, BEGIN);
    assert!((39 * SECOND..60 * SECOND).contains(&took), "{took} ms");
    assert_eq!((network.too_slow, network.dials().len()), (0, 1));
    let held = network.relay.account(&did("bot-00042")).expect("it came");
    assert_eq!((held.rev, held.throttled), (Some(rev(0)), false));
    // Those beyond the limit of accounts cost as much and are not handed on.
    assert!(network.relay.account(&did("bot-00900")).expect("it came").throttled);
    assert_eq!(network.relay.account_count(), 1_000);
}

/// Three thousand accounts are beyond the limit per hour: the relay stops reading, loses the connection, and reads the backlog
/// again and again until hours have passed. Nothing is lost, and nobody is called too slow.
#[test]
fn a_restore_of_three_thousand_accounts_ends_complete_however_often_the_relay_begins_again() {
    let (network, took) = restored(3_000, 100, Millis(BEGIN.0 / HOUR * HOUR + 10 * MINUTE));
    assert!((HOUR..3 * HOUR).contains(&took), "{} min", took / MINUTE);
    assert!(network.dials().len() > 1, "the reader came back later than the deadline allows");
    let mut cursors = network.dials();
    cursors.sort();
    assert_eq!(cursors, network.dials(), "each dial begins where the one before got to");
    assert_eq!(network.too_slow, 0);
    assert!(network.outputs.iter().all(|(_, output)| !matches!(output, Output::Host(_))), "it stays active");
}

/// With a limit that fits the accounts every one of them is handed on.
#[test]
fn a_relay_whose_limit_was_raised_takes_every_account() {
    let (network, took) = restored(3_000, 3_000, BEGIN);
    assert!(took < 2 * HOUR, "{} min", took / MINUTE);
    for did in dids(3_000) {
        assert_eq!(network.relay.account(&did).map(|held| (held.rev, held.throttled)), Some((Some(rev(0)), false)));
    }
    assert_eq!(network.too_slow, 0);
}

/// A relay that has read a host up to 100 and lives on.
fn resumed() -> Network {
    let mut network = Network::new(Relay::resuming(BEGIN, 100, 100), BEGIN);
    network.ceiling = 100;
    network
}

/// indigo#1231: the numbers of a server began again, the relay's cursor lay ahead, and no crawl could bring it back: each one
/// dialed with the same cursor. What frees it is a floor above that cursor.
#[test]
fn a_relay_that_met_a_future_cursor_is_stuck_until_the_numbers_rise_above_it() {
    let mut network = resumed();
    network.ceiling = 7;
    network.publish(|sequence| account(&did("one"), sequence, Position::ACTIVE));
    network.run(MINUTE);
    assert_eq!(network.relay.host(), (HostStatus::Idle, 100));
    assert_eq!((network.dials(), network.relay.is_subscribed()), (vec![Some(100)], false), "it does not dial again");
    for crawl in 2..5 {
        network.crawl();
        network.run(HOUR);
        assert_eq!(network.dials(), vec![Some(100); crawl], "a crawl dials with the cursor that it stored");
        assert_eq!(network.relay.host(), (HostStatus::Idle, 100));
    }
    network.input(Input::Restart);
    network.run(MINUTE);
    assert_eq!(network.dials().len(), 4, "a host that is idle is not dialed after a restart either");
    network.restore(&[did("one")], rev(0));
    network.crawl();
    network.run(MINUTE);
    assert_eq!(network.relay.host(), (HostStatus::Active, network.ceiling));
    assert_eq!(network.relay.account(&did("one")).and_then(|held| held.rev), Some(rev(0)));
}

#[test]
fn a_host_that_cannot_be_reached_is_given_up_with_the_sixteenth_dial() {
    let mut network = resumed();
    network.reachable = false;
    network.run(HOUR);
    assert_eq!((network.dials().len(), network.relay.host()), (16, (HostStatus::Offline, 100)));
    let dials: Vec<u64> = network
        .outputs
        .iter()
        .filter(|(_, output)| matches!(output, Output::Dial { .. }))
        .map(|(at, _)| at - BEGIN.0)
        .collect();
    assert!(dials[10] < 10 * SECOND, "{dials:?}");
    assert!((2 * MINUTE..4 * MINUTE).contains(&dials[15]), "{dials:?}");
    network.reachable = true;
    network.run(24 * HOUR);
    assert_eq!(network.dials().len(), 16, "it does not come back by itself");
    network.crawl();
    network.publish(|sequence| account(&did("one"), sequence, Position::ACTIVE));
    network.run(MINUTE);
    assert_eq!(network.relay.host(), (HostStatus::Active, 101));
}

/// Failures of several outages add up while no event moves the cursor: a quiet host is given up after outages that are short.
#[test]
fn failures_are_forgotten_only_when_the_cursor_moves() {
    let outage = |network: &mut Network, ms: u64| {
        network.reachable = false;
        network.disconnect();
        network.run(ms);
        network.reachable = true;
        network.run(MINUTE);
    };
    let mut quiet = resumed();
    quiet.run(MINUTE);
    for _ in 0..3 {
        outage(&mut quiet, 90 * SECOND);
    }
    assert_eq!(quiet.relay.host().0, HostStatus::Offline);
    let mut busy = resumed();
    busy.run(MINUTE);
    for _ in 0..10 {
        busy.publish(|sequence| account(&did("one"), sequence, Position::ACTIVE));
        busy.run(MINUTE);
        outage(&mut busy, 90 * SECOND);
    }
    assert_eq!(busy.relay.host(), (HostStatus::Active, 110));
}

#[test]
fn a_crawl_of_a_host_that_is_read_or_redialed_does_nothing() {
    let mut network = resumed();
    network.run(MINUTE);
    network.crawl();
    network.run(MINUTE);
    assert_eq!(network.dials().len(), 1);
    network.reachable = false;
    network.disconnect();
    network.run(MINUTE);
    let dials = network.dials().len();
    let next = network.relay.due();
    network.crawl();
    assert_eq!((network.dials().len(), network.relay.due()), (dials, next));
}

/// A relay that is new connects without a cursor: it sees nothing of what was sent before.
#[test]
fn a_relay_that_is_new_sees_what_comes_from_then_on() {
    let mut network = Network::new(Relay::new(BEGIN, 100), BEGIN);
    network.publish(|sequence| account(&did("one"), sequence, Position::ACTIVE));
    network.run(MINUTE);
    assert_eq!(network.dials(), [] as [Option<u64>; 0]);
    network.crawl();
    network.run(MINUTE);
    assert_eq!(network.dials(), [None]);
    assert_eq!((network.relay.account(&did("one")), network.relay.host().1), (None, 0));
    network.publish(|sequence| account(&did("two"), sequence, Position::ACTIVE));
    network.run(MINUTE);
    assert!(network.relay.account(&did("two")).is_some());
    assert_eq!(network.relay.host(), (HostStatus::Active, 2));
}

#[test]
fn the_cursor_is_stored_every_four_seconds_and_a_relay_that_restarts_begins_there() {
    let mut network = resumed();
    network.run(10 * SECOND);
    network.publish(|sequence| account(&did("one"), sequence, Position::ACTIVE));
    network.run(SECOND);
    assert_eq!((network.verdicts().len(), network.relay.host().1), (1, 100));
    network.input(Input::Restart);
    network.run(SECOND);
    assert_eq!(network.dials(), [Some(100), Some(100)], "it had not stored it yet, and reads it again");
    network.run(4 * SECOND);
    assert_eq!((network.verdicts().len(), network.relay.host().1), (2, 101));
    network.disconnect();
    network.run(SECOND);
    assert_eq!(network.dials().last(), Some(&Some(101)));
}

/// A frame is kept or dropped by what `getRepoStatus` answers when the relay gets to it, not by what was so when it was sent.
#[test]
fn the_relay_asks_where_an_inactive_account_stands_when_it_gets_to_a_commit() {
    let suspended = Position::inactive(Status::Suspended);
    for (answer, verdict) in [
        (Some(Position::ACTIVE), Verdict::Forwarded),
        (Some(suspended), Verdict::Dropped(Dropped::Inactive)),
        (None, Verdict::Dropped(Dropped::Inactive)),
    ] {
        let mut network = resumed();
        network.publish(|sequence| account(&did("one"), sequence, suspended));
        let sequence = network.publish(|sequence| sync(&did("one"), sequence, rev(0)));
        network.positions.extend(answer.map(|position| (did("one"), position)));
        network.run(MINUTE);
        assert_eq!(network.verdicts().last(), Some(&(sequence, verdict)));
        let asked = network.outputs.iter().filter(|(_, output)| matches!(output, Output::GetRepoStatus { .. })).count();
        assert_eq!(asked, 1);
        let held = network.relay.account(&did("one")).expect("it came").position;
        assert_eq!(held, answer.unwrap_or(suspended));
    }
}

#[test]
fn accounts_beyond_the_limit_are_throttled_until_it_is_raised() {
    let mut network = Network::new(Relay::resuming(BEGIN, 2, 1), BEGIN);
    network.ceiling = 1;
    for did in dids(4) {
        network.publish(|sequence| sync(&did, sequence, rev(0)));
    }
    network.run(MINUTE);
    let verdicts = |network: &Network| network.verdicts().into_iter().map(|(_, verdict)| verdict).collect::<Vec<_>>();
    let (taken, not) = (Verdict::Forwarded, Verdict::Dropped(Dropped::Throttled));
    assert_eq!((verdicts(&network), network.relay.account_count()), (vec![taken, taken, not, not], 4));
    network.relay.set_account_limit(3);
    for did in dids(4) {
        network.publish(|sequence| sync(&did, sequence, rev(1)));
    }
    network.run(MINUTE);
    assert_eq!(verdicts(&network)[4..], [taken, taken, taken, not]);
}

/// A commit is dropped for its revision; that its chain is broken is only warned of, and found by others.
#[test]
fn the_relay_drops_and_warns_as_it_does() {
    let mut server = Server::with(&["one"]);
    let mut network = Network::new(Relay::resuming(BEGIN, 100, 1), BEGIN);
    network.ceiling = 1;
    let told = [
        server.prepare("one", &[create(1, 1)]),
        server.prepare("one", &[update(1, 2)]),
        server.prepare("one", &[update(1, 3)]),
        server.prepare("one", &[update(1, 4)]),
    ];
    let mut first_again = told[3].clone();
    (first_again.since, first_again.previous_data) = (None, None);
    server.now = BEGIN.plus(10 * MINUTE);
    let future = server.prepare("one", &[update(1, 5)]);
    for (told, verdict) in [
        (&told[0], Verdict::Forwarded),
        (&told[2], Verdict::Warned),
        (&told[1], Verdict::Dropped(Dropped::Old)),
        (&told[2], Verdict::Dropped(Dropped::Old)),
        (&first_again, Verdict::Dropped(Dropped::NoPreviousData)),
        (&told[3], Verdict::Forwarded),
        (&future, Verdict::Dropped(Dropped::Future)),
    ] {
        server.sequence = network.ceiling;
        let message = server.tell(told);
        let sequence = network.publish(|_| message);
        network.run(SECOND);
        assert_eq!(network.verdicts().last(), Some(&(sequence, verdict)));
    }
    // A #sync is taken whatever its revision: what a server sends by mistake is what the relay then holds.
    network.publish(|sequence| sync(&did("one"), sequence, rev(0)));
    network.run(SECOND);
    assert_eq!(network.relay.account(&did("one")).and_then(|held| held.rev), Some(rev(0)));
}

/// A number that does not rise is skipped within a socket, and taken in the next one.
#[test]
fn numbers_must_rise_within_a_socket_alone() {
    let mut relay = Relay::resuming(BEGIN, 100, 100);
    let open = |relay: &mut Relay| {
        let dialed = relay.step(BEGIN, Input::Tick);
        assert!(matches!(dialed.last(), Some(Output::Dial { .. })), "{dialed:?}");
        relay.step(BEGIN, Input::Dialed(true));
    };
    let numbers = |relay: &mut Relay, sequence: u64| {
        let outputs = relay.step(BEGIN, Input::Message(account(&did("one"), sequence, Position::ACTIVE)));
        outputs.iter().filter(|output| matches!(output, Output::Processed { .. })).count()
    };
    open(&mut relay);
    assert_eq!([102, 102, 101, 103].map(|sequence| numbers(&mut relay, sequence)), [1, 0, 0, 1]);
    let closed = relay.step(BEGIN, Input::Closed);
    assert_eq!(closed, [Output::Close, Output::Dial { cursor: Some(103) }]);
    relay.step(BEGIN, Input::Dialed(true));
    assert_eq!(numbers(&mut relay, 5), 1);
    // What is no message ends the connection.
    let ended = relay.step(BEGIN, Input::Message(b"text".as_slice().into()));
    assert_eq!(ended.first(), Some(&Output::Close));
}

/// An idle stream stays up as long as pongs come; when they stop, the reader gives up a minute behind the last one.
#[test]
fn a_silent_stream_stays_up_while_the_server_answers_pings() {
    let mut network = resumed();
    network.run(24 * HOUR);
    assert_eq!((network.dials().len(), network.relay.connections()), (1, 1));
    network.pongs = false;
    network.run(2 * MINUTE);
    assert_eq!(network.dials().len(), 2, "it dials again");
    // Before the first pong of a connection there is no deadline at all.
    network.run(24 * HOUR);
    assert_eq!(network.dials().len(), 2);
}
