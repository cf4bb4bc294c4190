use super::*;
use highwater_disk::{Disk, File, OpenMode, SimDisk};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;

fn sample(epoch: u64) -> Meta {
    let binding = Binding {
        url: "http://127.0.0.1:4437/v1/stream/shop/orders".into(),
        incarnation: Incarnation::new((1 << 52) + 5).expect("in range"),
        cluster_id: "one".into(),
        protocol: 11,
        page_size: 4096,
        lineage: [7; 16],
    };
    let checkpoint = Checkpoint { position: LogPosition(1000), lsn: 4, pages: 9, checksum: 0xfeed };
    let seal = Seal {
        incarnation: binding.incarnation,
        epoch,
        seq: 3,
        from: LogPosition(500),
        to: LogPosition(1200),
        digest: Digest::of(b"body"),
        stream_offset: Offset(777),
    };
    Meta {
        epoch,
        next_seq: 3,
        acknowledged: LogPosition(500),
        acknowledged_record: LogPosition(400),
        acknowledged_lsn: 2,
        in_flight: Some(seal),
        image_end: LogPosition(100),
        fingerprint: Some(Fingerprint { length: 36_864, header: [3; 76], modified_ns: Some(1) }),
        unsynced: true,
        boot_id: Some([9; 16]),
        stop: Some(StopReason::new(StopCode::Fenced, "another process")),
        ..Meta::new(binding, checkpoint, Offset(777))
    }
}

fn file(disk: &SimDisk) -> Arc<dyn File> {
    disk.open(Path::new("/meta"), OpenMode::Create).expect("open")
}

#[test]
fn a_body_reads_back_and_says_where_to_scan() {
    let meta = sample(2);
    assert_eq!(Meta::decode(meta.encode().into()), Ok(meta.clone()));
    assert_eq!(meta.scan_start(), (LogPosition(400), 2));
    assert_eq!(meta.durable_floor(), LogPosition(1200));
    let long = StopReason::new(StopCode::History, "ä".repeat(2000));
    let cut = Meta { stop: Some(long), ..sample(2) };
    let read = Meta::decode(cut.encode().into()).expect("decodes");
    assert_eq!(read.stop.map(|stop| stop.text.len()), Some(STOP_TEXT_BYTES_MAX));
}

#[test]
fn the_largest_meta_fits_into_its_slot() {
    let mut meta = sample(2);
    meta.binding.url = "u".repeat(URL_BYTES_MAX);
    meta.binding.cluster_id = "c".repeat(CLUSTER_ID_BYTES_MAX);
    meta.stop = Some(StopReason::new(StopCode::Fenced, "t".repeat(STOP_TEXT_BYTES_MAX)));
    let disk = SimDisk::new(1);
    MetaFile::create(file(&disk), &meta).expect("it fits");
    assert_eq!(MetaFile::open(file(&disk)).expect("open").1, meta);
}

/// Whatever a save was torn into by a loss of power, the last synced state or a later one is read.
#[test]
fn a_torn_save_leaves_the_last_synced_one() {
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let mut meta = MetaFile::create(file(&disk), &sample(1)).expect("create");
        disk.sync_directory(Path::new("/")).expect("sync");
        let mut random = highwater_base::random::SplitMix::new(seed);
        let mut synced = 1;
        let last = 2 + seed % 7;
        for epoch in 2..=last {
            let sync = highwater_base::Random::below(&mut random, 2) == 0;
            meta.save(&sample(epoch), sync).expect("save");
            synced = if sync { epoch } else { synced };
            if highwater_base::Random::below(&mut random, 4) == 0 {
                disk.crash_process();
                meta = MetaFile::open(file(&disk)).expect("open").0;
            }
        }
        disk.power_loss();
        let (_, read) = MetaFile::open(file(&disk)).expect("one slot is whole");
        assert!((synced..=last).contains(&read.epoch), "seed {seed}: {synced} synced, {} read", read.epoch);
    }
}

#[test]
fn every_single_bit_flip_in_the_newest_slot_falls_back_or_is_refused() {
    let disk = SimDisk::new(1);
    let mut meta = MetaFile::create(file(&disk), &sample(1)).expect("create");
    meta.save(&sample(2), true).expect("save");
    let mut bytes = vec![0; 2 * SLOT_BYTES];
    file(&disk).read_exact_at(&mut bytes, 0).expect("read");
    let used = 28 + sample(2).encode().len();
    for bit in 0..used * 8 {
        let at = SLOT_BYTES + bit / 8;
        bytes[at] ^= 1 << (bit % 8);
        file(&disk).write_at(&bytes, 0).expect("write");
        assert_eq!(MetaFile::open(file(&disk)).expect("the other slot").1, sample(1), "bit {bit}");
        bytes[at] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_later_version_is_refused_even_beside_a_whole_slot_of_ours() {
    let disk = SimDisk::new(1);
    MetaFile::create(file(&disk), &sample(1)).expect("create");
    let mut bytes = vec![0; SLOT_BYTES];
    file(&disk).read_exact_at(&mut bytes, 0).expect("read");
    bytes[8] = 2;
    let length = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]) as usize + 24;
    let checksum = crc32c::crc32c(&bytes[..length]);
    bytes[length..length + 4].copy_from_slice(&checksum.to_le_bytes());
    file(&disk).write_at(&bytes, SLOT_BYTES as u64).expect("write");
    assert!(matches!(MetaFile::open(file(&disk)), Err(MetaError::Version(2))));
    file(&disk).set_length(0).expect("cut");
    assert!(matches!(MetaFile::open(file(&disk)), Err(MetaError::Damaged)));
}

proptest! {
    #[test]
    fn random_bodies_never_panic(body in proptest::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(meta) = Meta::decode(body.clone().into()) {
            prop_assert_eq!(meta.encode(), body, "one spelling only");
        }
    }
}
