//! What a volume holds of its accounts' secrets.

mod support;

use highwater_base::random::SplitMix;
use highwater_disk::SimDisk;
use highwater_host::seal::KeyFile;
use highwater_host::{Host, OpenError, Sealer, Seams};
use highwater_pds::Fact;
use std::path::Path;
use std::sync::Arc;
use support::{Server, SetClock, options};

fn key(seed: u64) -> Arc<dyn Sealer> {
    let disk = SimDisk::new(seed);
    highwater_disk::create_directory_durably(&disk, Path::new("/keys")).expect("made");
    Arc::new(KeyFile::create(&disk, Path::new("/keys/pds.key"), &mut SplitMix::new(seed)).expect("made"))
}

fn open(disk: &SimDisk, sealer: Option<Arc<dyn Sealer>>) -> Result<Server, OpenError> {
    let clock = SetClock::new();
    let seams = Seams {
        disk: Arc::new(disk.clone()),
        clock: clock.clone(),
        random: Box::new(SplitMix::new(disk.operations())),
        sealer,
    };
    let (host, worker, boot) = Host::open(options(), seams)?;
    Ok(Server { disk: disk.clone(), clock, host, worker, boot })
}

/// Every secret of a server: the keys of its accounts, and what session tokens are signed with.
fn secrets(server: &Server) -> Vec<Vec<u8>> {
    server.host.state(|state| {
        let keys = state.accounts.values().map(|account| (account.key.sealed, account.key.secret.clone()));
        let kept = keys.chain(state.session_secret.clone());
        kept.map(|(sealed, secret)| server.host.unseal(sealed, &secret).expect("it opens")).collect()
    })
}

/// Makes accounts, signs with their keys, and puts everything into the log, the store and their files.
fn fill(mut server: Server) -> (Server, Vec<Vec<u8>>) {
    for _ in 0..3 {
        let account = server.account();
        server.put(account, "a", "text");
    }
    let (sealed, secret) = server.host.seal(&[0xa7; 32]);
    let noted = server.host.note(Fact::SessionSecret { sealed, secret });
    server.settle(noted).expect("noted");
    let secrets = secrets(&server);
    assert_eq!(secrets.len(), 4);
    (server, secrets)
}

fn holds(disk: &SimDisk, secret: &[u8]) -> bool {
    disk.files().iter().any(|(_, bytes)| bytes.windows(secret.len()).any(|window| window == secret))
}

#[test]
fn a_volume_alone_holds_no_secret_of_its_accounts() {
    let disk = SimDisk::new(1);
    let (server, known) = fill(open(&disk, Some(key(1))).expect("it opens"));
    let (disk, worker) = (server.disk.clone(), server.worker);
    worker.stop().expect("stopped");
    for secret in &known {
        assert!(!holds(&disk, secret), "a secret lies on the volume as it is");
    }
    let again = open(&disk, Some(key(1))).expect("the same key");
    assert_eq!(secrets(&again), known);
}

/// The other half of the test above, which would else pass if it looked in the wrong place.
#[test]
fn without_a_key_file_secrets_lie_on_the_volume_as_they_are() {
    let disk = SimDisk::new(2);
    let (server, known) = fill(open(&disk, None).expect("it opens"));
    let (disk, worker) = (server.disk.clone(), server.worker);
    worker.stop().expect("stopped");
    for secret in &known {
        assert!(holds(&disk, secret));
    }
}

#[test]
fn a_volume_is_refused_without_its_key_and_with_another_and_nothing_changes() {
    for made_with in [None, Some(1)] {
        let disk = SimDisk::new(3);
        let (server, _) = fill(open(&disk, made_with.map(key)).expect("it opens"));
        drop((server.host, server.worker));
        let before = disk.files();
        for other in [None, Some(1), Some(2)] {
            if other == made_with {
                continue;
            }
            match open(&disk, other.map(key)) {
                Err(OpenError::Key(why)) => assert!(!why.is_empty()),
                Err(other) => panic!("{other}"),
                Ok(_) => panic!("made with {made_with:?}, opened with {other:?}"),
            }
        }
        assert_eq!(disk.files(), before);
    }
}
