//! Random use of a store against the model.

use crate::world::{DIRECTORY, World, disk as new_disk, payload, small};
use highwater_disk::sim::{ENOSPC, Operation};
use highwater_disk::{Disk, SimDisk};
use highwater_store::CheckpointDone;
use proptest::prelude::*;
use std::path::Path;

#[derive(Debug, Clone)]
enum Step {
    Append {
        object: u64,
        length: u64,
    },
    Remove {
        object: u64,
    },
    Release {
        object: u64,
        /// Of a thousand, of what is left.
        part: u64,
    },
    Checkpoint,
    /// A checkpoint that compacts.
    Compact {
        bytes_max: u64,
    },
    /// Begins one that runs while the next steps happen.
    Begin,
    End,
    /// One that finds the disk full at some write or sync.
    Full {
        after: u64,
        sync: bool,
    },
    Reopen,
    PowerLoss,
    Read {
        object: u64,
        from: u64,
        length: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![4 => 1u64..300, 2 => 1u64..9000, 1 => 1u64..400_000];
    prop_oneof![
        12 => (0u64..6, length).prop_map(|(object, length)| Step::Append { object, length }),
        1 => (0u64..6).prop_map(|object| Step::Remove { object }),
        2 => (0u64..6, prop_oneof![0u64..=1000, Just(1000)]).prop_map(|(object, part)| Step::Release { object, part }),
        3 => Just(Step::Checkpoint),
        2 => (1u64..600_000).prop_map(|bytes_max| Step::Compact { bytes_max }),
        2 => Just(Step::Begin),
        2 => Just(Step::End),
        1 => (0u64..6, any::<bool>()).prop_map(|(after, sync)| Step::Full { after, sync }),
        1 => Just(Step::Reopen),
        1 => Just(Step::PowerLoss),
        3 => (0u64..6, 0u64..500_000, 0u64..500_000).prop_map(|(object, from, length)| Step::Read { object, from, length }),
    ]
}

/// A checkpoint that has run and was not taken in yet.
type Running = Option<CheckpointDone>;

fn end(world: &mut World, running: &mut Running) {
    if let Some(done) = running.take() {
        world.end(Ok(done)).expect("it is done");
    }
}

fn read(world: &mut World, object: u64, from: u64, length: u64) {
    let bytes = world.read(object, from, length).expect("readable");
    let expected = world.model.objects.get(&object).filter(|modelled| (modelled.start..modelled.end).contains(&from));
    let Some(modelled) = expected else { return assert!(bytes.is_empty(), "{object} has nothing at {from}") };
    if from < modelled.front {
        // What was given up may be gone in part; what is still found is what it was.
        let found = from..from + bytes.len() as u64;
        return assert!(bytes == payload(object ^ modelled.salt << 8, found), "{object} from {from}");
    }
    let to = modelled.end.min(from + length);
    assert!(bytes == payload(object ^ modelled.salt << 8, from..to), "{object} from {from} to {to}");
}

fn take(disk: &SimDisk, world: World, running: &mut Running, step: Step) -> World {
    let mut world = world;
    match step {
        Step::Append { object, length } => world.append(object, length),
        Step::Remove { object } => world.remove(object),
        Step::Release { object, part } => world.release(object, part),
        Step::Read { object, from, length } => read(&mut world, object, from, length),
        Step::End => end(&mut world, running),
        Step::Begin | Step::Checkpoint => {
            end(&mut world, running);
            let checkpoint = world.begin();
            *running = Some(checkpoint.run(&*world.log).expect("a sound disk"));
            if matches!(step, Step::Checkpoint) {
                end(&mut world, running);
            }
        }
        Step::Compact { bytes_max } => {
            end(&mut world, running);
            world.compact(bytes_max).expect("a sound disk");
        }
        Step::Full { after, sync } => {
            end(&mut world, running);
            let operation = if sync { Operation::Sync } else { Operation::Write };
            disk.fail(operation, "", after, 1, ENOSPC);
            let before = world.store.status().applied;
            match world.checkpoint() {
                Ok(()) => disk.clear_faults(),
                Err(_) => assert_eq!(world.store.status().applied, before),
            }
        }
        Step::Reopen | Step::PowerLoss => {
            *running = None;
            if matches!(step, Step::PowerLoss) {
                disk.power_loss();
            }
            world = world.reopen().expect("a sound store");
        }
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 2000, ..Default::default() })]

    #[test]
    fn a_store_is_a_vec_of_bytes_for_each_object(seed: u64, steps in prop::collection::vec(step(), 1..60)) {
        let disk = new_disk(seed);
        let (mut world, mut running) = (World::new(&disk, small()), None);
        for step in steps {
            world = take(&disk, world, &mut running, step);
        }
        world.check_payload();
        end(&mut world, &mut running);
        world.check_payload();
        world.checkpoint().expect("a sound disk");
        world.check_payload();
        prop_assert_eq!(world.store.unmoved_bytes(), 0);
        world.log.free_all();
        let mut world = world.reopen().expect("a sound store");
        world.check_payload();
        let files = world.store.status().files as usize;
        let names = disk.list(Path::new(DIRECTORY)).expect("a folder");
        let data = names.iter().filter(|name| name.starts_with("data-")).count();
        prop_assert_eq!((names.len(), data), (files + 1, files), "nothing but the index and live files: {:?}", names);
    }
}
