//! The tests that the proposal of relay-sync names, under its own headings, as far as the machine alone can be asked.

/// Against a recording sink.
mod account_announce_restart {
    use crate::server::Server;
    use highwater_pds::frame::Kind;
    use highwater_pds::lifecycle::{Announce, Change};

    fn server() -> Server {
        let mut server = Server::new();
        for name in ["a", "b", "c"] {
            server.create(name, Some(Announce::OnActivation));
            server.write(name, "x", 1).expect("written");
        }
        server
    }

    /// What comes behind a number, by account.
    fn sent(server: &Server, behind: u64) -> Vec<(String, Kind)> {
        let events = server.directory.events.iter().filter(|sent| sent.seq > behind);
        events.map(|sent| (server.state.accounts[&sent.account].handle.to_string(), sent.kind)).collect()
    }

    fn newest(server: &Server) -> u64 {
        server.directory.events.last().map_or(0, |sent| sent.seq)
    }

    #[test]
    fn a_boot_after_a_clean_stop_sends_no_account() {
        let mut server = server();
        server.change("b", Change::Lock).expect("locked");
        server.checkpoint();
        let before = newest(&server);
        server.boot().expect("it lives");
        assert_eq!(sent(&server, before), []);
        assert_eq!(server.directory.log.len(), 0, "nothing is stored either");
    }

    #[test]
    fn a_boot_after_a_lift_that_never_reached_the_sink_sends_that_accounts_account_and_no_other() {
        let mut server = server();
        server.change("b", Change::Lock).expect("locked");
        server.full = true;
        server.change("b", Change::Lift).expect("lifted");
        server.full = false;
        let (before, signed) = (newest(&server), server.signed.len());
        server.boot().expect("it lives");
        let of_b = |kind| ("b-bot.pds.test".to_owned(), kind);
        assert_eq!(sent(&server, before), [of_b(Kind::Account), of_b(Kind::Sync)]);
        assert_eq!(server.signed.len(), signed, "the lift signed its commit, the start signs none");
    }

    #[test]
    fn a_lock_whose_frame_could_not_be_numbered_goes_out_with_the_accounts_next_change() {
        let mut server = server();
        server.full = true;
        server.change("a", Change::Lock).expect("locked");
        assert!(server.write("a", "x", 2).is_err(), "it bites at once");
        server.full = false;
        let before = newest(&server);
        // A change that shows nothing new by itself.
        server.change("a", Change::Deactivate).expect("deactivated");
        assert_eq!(sent(&server, before), [("a-bot.pds.test".to_owned(), Kind::Account)]);
    }

    #[test]
    fn a_lock_whose_frame_could_not_be_numbered_goes_out_with_the_next_boot_otherwise() {
        let mut server = server();
        server.full = true;
        server.change("a", Change::Lock).expect("locked");
        server.full = false;
        let before = newest(&server);
        server.boot().expect("it lives");
        assert_eq!(sent(&server, before), [("a-bot.pds.test".to_owned(), Kind::Account)]);
        let before = newest(&server);
        server.boot().expect("it lives");
        assert_eq!(sent(&server, before), []);
    }

    #[test]
    fn the_first_boot_over_rows_written_before_announced_sends_every_account_once_and_the_next_none() {
        let mut server = server();
        server.change("b", Change::Lock).expect("locked");
        server.change("c", Change::Erase).expect("erased");
        server.state.accounts.values_mut().for_each(|account| account.announced = None);
        server.checkpoint();
        let before = newest(&server);
        server.boot().expect("it lives");
        let frames = sent(&server, before);
        assert_eq!(frames.len(), 3);
        assert!(frames.iter().all(|(_, kind)| *kind == Kind::Account));
        let before = newest(&server);
        server.boot().expect("it lives");
        assert_eq!(sent(&server, before), []);
    }
}

/// Over a copied data directory.
mod restore {
    use crate::server::{Sent, Server, key};
    use highwater_consumer::frame::Frame;
    use highwater_pds::frame::Kind;
    use highwater_pds::lifecycle::{Announce, Change};
    use highwater_pds::restore::Marker;
    use highwater_repo::{Commit, Tid, car};

    /// A copy of a live, a locked and a decommissioned account, put back after the lost run wrote more; and the highest number that the
    /// lost run handed out, some of them to a log that had no room.
    fn restored(accounts: usize) -> (Server, u64) {
        let mut server = Server::new();
        for number in 0..accounts {
            server.create(&format!("a{number}"), Some(Announce::OnActivation));
        }
        server.write("a0", "x", 1).expect("written");
        server.change("a1", Change::Lock).expect("locked");
        server.change("a2", Change::Decommission).expect("moved");
        let copy = server.directory.clone();
        server.write("a0", "y", 2).expect("written");
        server.full = true;
        assert_eq!(server.write("a0", "y", 3), Ok(false));
        server.full = false;
        let handed = server.sequence.take().expect("there are numbers").0;
        server.directory = copy;
        server.directory.marker = Some(Marker::default());
        server.now = server.now.plus_seconds(60);
        (server, handed)
    }

    fn told(server: &Server, handed: u64) -> Vec<&Sent> {
        server.directory.events.iter().filter(|sent| sent.seq > handed).collect()
    }

    #[test]
    fn with_the_marker_the_first_frames_number_is_above_every_number_the_lost_run_handed_out() {
        let (mut server, handed) = restored(3);
        let kept = server.directory.events.len();
        server.boot().expect("it lives");
        let first = server.directory.events[kept].seq;
        assert!(first > handed + 999_999_000_000, "{first}");
        assert_eq!(first, server.directory.floor + 1, "the floor was durable, in the log and beside it");
    }

    #[test]
    fn with_the_marker_each_live_account_gets_account_and_then_sync_over_its_restored_data() {
        let (mut server, handed) = restored(3);
        let id = highwater_pds::AccountId(1);
        let lost: Option<Tid> = server.signed.keys().filter(|(account, _)| *account == id).map(|(_, rev)| *rev).max();
        server.replay();
        let data = server.account("a0").head.expect("it has one").data;
        server.boot().expect("it lives");
        let of_a0: Vec<&Sent> = told(&server, handed).into_iter().filter(|sent| sent.account == id).collect();
        assert_eq!(of_a0.iter().map(|sent| sent.kind).collect::<Vec<_>>(), [Kind::Account, Kind::Sync]);
        let Ok(Frame::Sync(sync)) = Frame::decode(of_a0[1].frame.clone()) else { panic!("no #sync") };
        let mut archive = car::Reader::new();
        archive.push(&sync.blocks);
        let (_, block) = archive.block().expect("whole").expect("a block");
        let commit = Commit::decode(block).expect("a commit");
        assert_eq!(commit.verify(&key(id).public()), Ok(()));
        assert_eq!((commit.data, commit.rev), (data, sync.rev));
        assert!(Some(commit.rev) > lost, "above the lost run's highest");
    }

    #[test]
    fn with_the_marker_a_decommissioned_account_gets_nothing() {
        let (mut server, handed) = restored(3);
        server.boot().expect("it lives");
        let of_a2 = server.id("a2");
        assert!(told(&server, handed).iter().all(|sent| sent.account != of_a2));
    }

    /// As amended: the next boot goes on, and repeats no frame.
    #[test]
    fn a_boot_stopped_part_way_through_leaves_the_marker_and_the_next_sends_each_frame_once_and_removes_it() {
        let (mut server, handed) = restored(3);
        server.lives = Some(2);
        assert!(server.boot().is_err());
        assert!(server.directory.marker.is_some());
        let before = told(&server, handed).len();
        assert!(before > 0, "it died part way");
        server.lives = None;
        server.boot().expect("it lives");
        assert_eq!(server.directory.marker, None);
        let kinds: Vec<(u64, Kind)> = told(&server, handed).iter().map(|sent| (sent.account.0, sent.kind)).collect();
        assert_eq!(kinds, [(1, Kind::Account), (1, Kind::Sync), (2, Kind::Account)]);
    }

    #[test]
    fn a_boot_without_the_marker_signs_no_commit() {
        let (mut server, _) = restored(3);
        server.directory.marker = None;
        let signed = server.signed.len();
        server.boot().expect("it lives");
        assert_eq!(server.signed.len(), signed);
    }

    #[test]
    fn a_boot_that_numbers_more_than_4096_frames_replays_all_of_them_to_whoever_connects_after_it() {
        let (mut server, handed) = restored(2_100);
        server.boot().expect("it lives");
        let expected = 2 * 2_098 + 1;
        assert_eq!(told(&server, handed).len(), expected);
        let (_, frames) = server.subscribe(Some(handed));
        assert_eq!(frames.len(), expected);
    }
}
