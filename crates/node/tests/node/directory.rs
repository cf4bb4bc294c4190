//! The data directory: made once, of an empty one, for one server.

use crate::harness::{Host, config};
use highwater_base::random::SplitMix;
use highwater_disk::{Disk, OpenMode};
use highwater_node::GroupState;
use highwater_node::OpenError;
use highwater_node::config::Config;
use highwater_node::solo::Solo;
use std::path::Path;
use std::sync::Arc;

#[test]
fn an_empty_directory_is_made_once_and_keeps_its_identity() {
    let mut host = Host::serving(1);
    let id = host.node().cluster_id().to_owned();
    assert!(id.starts_with("hw-") && id.len() == 35, "{id}");
    host.kill();
    // The number of groups is the directory's, whatever the settings say later.
    host.config.groups = 7;
    host.open().expect("opens");
    assert_eq!(host.node().cluster_id(), id);
    assert_eq!(host.node().core().status().len(), 2);
}

#[test]
fn each_directory_names_its_log_at_random_and_keeps_the_name() {
    let identity = |host: &Host| {
        let file = host.disk.open(Path::new("/data/wal/state"), OpenMode::Read).expect("the log's state");
        let mut identity = [0; 8];
        file.read_exact_at(&mut identity, 14).expect("read");
        identity
    };
    let (mut one, other) = (Host::serving(1), Host::serving(2));
    let before = identity(&one);
    assert_ne!(before, identity(&other), "both were made in one boot");
    one.kill();
    one.open().expect("opens");
    assert_eq!(identity(&one), before);
}

/// The story: the log's state file was lost, every group refused to serve for the byte 0 of a segment, and nothing named
/// the file.
#[test]
fn a_lost_state_file_of_the_log_is_named_by_every_group_that_refuses_and_at_every_start() {
    for damaged in [false, true] {
        let mut host = Host::serving(1);
        host.create("s");
        host.kill();
        let state = Path::new("/data/wal/state");
        match damaged {
            false => host.disk.remove(state).expect("removed"),
            true => host.disk.flip_bit(state, 20).expect("a byte"),
        }
        for start in 0..2 {
            host.open().expect("the node opens, to say so");
            for group in host.node().core().status() {
                let GroupState::Damaged(reason) = &group.state else { panic!("start {start}: {group:?}") };
                assert!(reason.contains("wal/state"), "start {start}: {reason}");
            }
            host.kill();
        }
    }
}

#[test]
fn a_second_server_on_a_directory_is_refused() {
    let host = Host::serving(1);
    let disk: Arc<dyn Disk> = Arc::new(host.disk.clone());
    let second = Solo::<u64>::open(&config(), &disk, &mut SplitMix::new(2)).err();
    assert!(matches!(&second, Some(OpenError::InUse(_))), "{second:?}");
    assert!(second.expect("refused").to_string().contains("in use"));
}

#[test]
fn data_without_its_cluster_file_is_refused_and_kept() {
    let mut host = Host::serving(1);
    host.create("s");
    host.kill();
    host.disk.remove(Path::new("/data/cluster")).expect("removed");
    let before = host.disk.files().len();
    assert!(matches!(host.open(), Err(OpenError::NoClusterFile(_))));
    assert_eq!(host.disk.files().len(), before, "a refused directory was changed");
}

#[test]
fn a_directory_of_something_else_is_refused() {
    let mut host = Host::new(1);
    host.disk.create_directory(Path::new("/data")).expect("made");
    host.disk.open(Path::new("/data/thesis.tex"), OpenMode::CreateNew).expect("made");
    assert!(matches!(host.open(), Err(OpenError::NotEmpty { name, .. }) if name == "thesis.tex"));
}

#[test]
fn a_directory_that_lost_its_log_is_refused() {
    let mut host = Host::serving(1);
    host.create("s");
    host.append("s", &[1; 60_000]);
    host.node().checkpoint();
    host.kill();
    for (path, _) in host.disk.files() {
        if path.starts_with("/data/wal") {
            host.disk.remove(&path).expect("removed");
        }
    }
    assert!(matches!(host.open(), Err(OpenError::LogMissing(_))), "acknowledged writes would be gone without a word");
}

#[test]
fn a_cluster_file_of_a_later_version_is_refused() {
    let mut host = Host::serving(1);
    host.kill();
    host.disk.flip_bit(Path::new("/data/cluster"), 8).expect("in the file");
    assert!(matches!(host.open(), Err(OpenError::ClusterFile(_))));
}

#[test]
fn settings_that_cannot_work_are_refused_in_words() {
    let mut host = Host::with(1, Config { wal_bytes_max: 1 << 10, ..config() });
    assert!(matches!(host.open(), Err(OpenError::Settings(why)) if why.contains("four segments")));
}

#[test]
fn a_crash_at_any_point_of_the_making_leaves_a_directory_that_opens() {
    let operations = {
        let host = Host::serving(1);
        host.disk.operations()
    };
    for stop in 1..=operations {
        let mut host = Host::new(1);
        host.disk.stop_at(stop);
        let opened = host.open();
        assert!(host.disk.stopped() || opened.is_ok());
        host.power_off();
        host.open().unwrap_or_else(|error| panic!("stopped at {stop}: {error}"));
        host.create("s");
    }
}
