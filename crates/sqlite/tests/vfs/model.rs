//! The model test: random SQL through the VFS and through stock SQLite gives the same answers and the same file, byte
//! for byte: after a checkpoint, after the log was replayed over what a killed process left, and after a rebuild from
//! the stream.

use crate::bed::{Bed, integrity, path};
use crate::mirror::{Mirror, Seen};
use crate::script::{Random, Step, schema};
use highwater_sqlite::batch::BATCH_BYTES_MAX;
use highwater_sqlite::engine::Engine;
use rusqlite::Connection;
use std::path::Path;

const NAMES: [&str; 2] = ["app.db", "other.db"];

/// The database and a second one that is attached, under the VFS and as copies under stock SQLite.
struct Pair {
    bed: Bed,
    folder: tempfile::TempDir,
    ours: Vec<Connection>,
    stock: Vec<Connection>,
    /// The streams of [`NAMES`].
    mirrors: [Mirror; 2],
}

fn stock_open(folder: &Path) -> Connection {
    let connection = Connection::open(folder.join("app.db")).expect("open");
    connection.busy_timeout(std::time::Duration::ZERO).expect("timeout");
    // The file it writes is the same, and nobody pulls its plug.
    connection.execute_batch("PRAGMA synchronous=OFF").expect("pragma");
    connection.execute("ATTACH ?1 AS other", [folder.join("other.db").to_str().expect("a path")]).expect("attach");
    connection.execute_batch("PRAGMA other.synchronous=OFF").expect("pragma");
    connection
}

impl Pair {
    fn new(seed: u64, page_size: u32, auto_vacuum: u8) -> Self {
        let bed = Bed::bound(seed, page_size, auto_vacuum);
        bed.bind("other.db", page_size, 0);
        let folder = tempfile::tempdir().expect("a folder");
        for name in NAMES {
            // From the same first bytes, so that all the later ones can be compared.
            std::fs::write(folder.path().join(name), bed.bytes(name)).expect("write");
        }
        let mirrors = [Mirror::new(seed), Mirror::new(seed + 1)];
        let mut pair = Self { bed, folder, ours: Vec::new(), stock: Vec::new(), mirrors };
        pair.open(1);
        pair.replicate(Mirror::claim);
        pair
    }

    fn open(&mut self, connections: usize) {
        for _ in 0..connections {
            let ours = self.bed.open();
            ours.execute("ATTACH ?1 AS other", [self.bed.uri("other.db")]).expect("attach");
            self.ours.push(ours);
            self.stock.push(stock_open(self.folder.path()));
        }
    }

    /// Does something to both streams.
    fn replicate(&mut self, action: impl Fn(&mut Mirror, &Engine)) {
        for (name, mirror) in NAMES.iter().zip(&mut self.mirrors) {
            let database = self.bed.registry.find(&path(name)).expect("it is open");
            action(mirror, &database.engine);
        }
    }

    fn step(&self, connection: usize, step: &Step, context: &str) {
        let (ours, stock) = (step.run(&self.ours[connection]), step.run(&self.stock[connection]));
        assert_eq!(ours, stock, "{context}: {}", step.sql);
    }

    /// Ends whatever runs, and copies all of both `-wal`s into the files.
    fn settle(&self, context: &str) {
        for (ours, stock) in self.ours.iter().zip(&self.stock) {
            assert_eq!(ours.is_autocommit(), stock.is_autocommit(), "{context}");
            if !ours.is_autocommit() {
                ours.execute_batch("COMMIT").expect("commit");
                stock.execute_batch("COMMIT").expect("commit");
            }
        }
        for connection in [&self.ours[0], &self.stock[0]] {
            connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("checkpoint");
        }
    }

    fn compare(&self, context: &str) {
        for name in NAMES {
            let stock = std::fs::read(self.folder.path().join(name)).expect("read");
            assert_same(&self.bed.bytes(name), &stock, &format!("{context}: {name}"));
        }
    }

    /// Sends what the streams lack, rebuilds the databases from them alone, and compares these.
    fn compare_rebuilt(&mut self, context: &str) {
        self.replicate(Mirror::send_all);
        for (name, mirror) in NAMES.iter().zip(&mut self.mirrors) {
            let database = self.bed.registry.find(&path(name)).expect("it is open");
            let (lsn, rebuilt) = mirror.restore();
            assert_eq!(lsn, database.engine.progress().last_lsn, "{context}: commits of {name}");
            let stock = std::fs::read(self.folder.path().join(name)).expect("read");
            assert_same(&rebuilt, &stock, &format!("{context}: {name} from its stream"));
        }
    }

    /// The process dies with its page cache kept, and another opens the database.
    fn crash(&mut self) {
        let connections = self.ours.len();
        self.bed.disk.crash_process();
        self.ours.clear();
        // Stock SQLite ends with everything in its file, as recovery does.
        self.stock[0].execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("checkpoint");
        self.stock.clear();
        self.bed = Bed::on(&self.bed.disk.clone());
        self.open(connections);
    }
}

fn assert_same(ours: &[u8], stock: &[u8], context: &str) {
    assert_eq!(ours.len(), stock.len(), "{context}: length");
    let page_size = match u16::from_be_bytes([stock[16], stock[17]]) {
        1 => 65_536,
        size => usize::from(size),
    };
    let pages = ours.chunks(page_size).zip(stock.chunks(page_size)).zip(1..);
    let different: Vec<usize> = pages.filter(|((ours, stock), _)| ours != stock).map(|(_, number)| number).collect();
    assert!(different.is_empty(), "{context}: pages {different:?} differ");
    assert_eq!(ours[18..20], [2, 2], "{context}: the header stays WAL");
}

fn play(seed: u64, page_size: u32, auto_vacuum: u8, connections: usize, steps: usize) -> Seen {
    let mut pair = Pair::new(seed, page_size, auto_vacuum);
    let mut random = Random::new(seed);
    for sql in schema().iter().map(String::as_str).chain(["CREATE TABLE other.o(id INTEGER PRIMARY KEY, a)"]) {
        pair.step(0, &Step { sql: sql.to_owned(), blob: None }, "schema");
    }
    pair.open(connections - 1);
    for round in 0..3 {
        for at in 0..steps {
            let connection = random.below(connections as u64) as usize;
            let step = Step::draw(&mut random, u64::from(page_size));
            pair.step(connection, &step, &format!("seed {seed}, round {round}, step {at}"));
            match random.below(40) {
                0 | 1 => pair.replicate(Mirror::send_some),
                // Its owner is not sure of its stream any more.
                2 => pair.replicate(Mirror::claim),
                _ => {}
            }
        }
        let context = format!("seed {seed}, round {round}");
        if round == 1 {
            // Not settled: what was committed is in the log alone, and what was not is nowhere.
            for (ours, stock) in pair.ours.iter().zip(&pair.stock) {
                if !ours.is_autocommit() {
                    ours.execute_batch("ROLLBACK").expect("rollback");
                    stock.execute_batch("ROLLBACK").expect("rollback");
                }
            }
            pair.replicate(Mirror::send_part_of_last);
            pair.crash();
            pair.compare(&format!("{context}, replayed"));
            pair.replicate(Mirror::claim);
        } else {
            pair.settle(&context);
            pair.compare(&context);
        }
        pair.compare_rebuilt(&context);
        // On both sides, so that what it loads (an FTS5 table keeps a statement open) is loaded on both. FTS5 has its
        // own opinion of its tables after some rolled-back savepoints; it must be the same.
        let (ours, stock) = (integrity(&pair.ours[0]), integrity(&pair.stock[0]));
        assert_eq!(ours, stock, "{context}");
        assert!(ours == "ok" || ours.starts_with("fts5"), "{context}: {ours}");
    }
    pair.mirrors.iter().fold(Seen::default(), |seen, mirror| seen.and(mirror.seen))
}

/// The first seeds are always played; `HIGHWATER_SEEDS` adds more.
fn seeds() -> u64 {
    std::env::var("HIGHWATER_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1)
}

#[test]
fn random_sql_gives_the_file_that_stock_sqlite_gives() {
    let mut seen = Seen::default();
    for round in 0..seeds() {
        for (seed, page_size) in (1..).zip([512, 1_024, 4_096, 65_536]) {
            for auto_vacuum in 0..3 {
                seen =
                    seen.and(play(1_000 * round + seed * 10 + u64::from(auto_vacuum), page_size, auto_vacuum, 1, 120));
            }
        }
    }
    assert!(seen.parts_max >= 5 && seen.voided >= 24, "too little was asked of the stream: {seen:?}");
}

#[test]
fn random_sql_on_several_connections_gives_the_same_file_too() {
    for round in 0..seeds() {
        for (seed, page_size) in (100..).zip([2_048, 4_096, 8_192, 16_384, 32_768]) {
            play(1_000 * round + seed, page_size, (seed % 3) as u8, 3, 150);
        }
    }
}

/// A commit of more bytes than a batch may have, and than a restore keeps in memory. A claim voids what was sent of it,
/// and before that what was sent of the very first commit, which a restore applies as it arrives.
#[test]
fn a_commit_that_spans_batches_is_rebuilt_after_a_claim_voided_a_part_of_it() {
    let mut pair = Pair::new(7, 4_096, 0);
    pair.replicate(Mirror::send_part_of_last);
    pair.replicate(Mirror::claim);
    let mut random = Random::new(7);
    let noise: Vec<u8> = (0..6 << 17).flat_map(|_| random.next().to_le_bytes()).collect();
    for (context, sql, blob) in [
        ("schema", "CREATE TABLE t(id INTEGER PRIMARY KEY, b BLOB)", None),
        ("a small commit", "INSERT INTO t VALUES (1, ?1)", Some(noise[..100].to_vec())),
        ("a large commit", "INSERT INTO t VALUES (2, ?1)", Some(noise)),
    ] {
        pair.step(0, &Step { sql: sql.to_owned(), blob }, context);
    }
    pair.replicate(Mirror::send_part_of_last);
    pair.crash();
    pair.compare("replayed");
    pair.replicate(Mirror::claim);
    pair.compare_rebuilt("rebuilt");
    let seen = pair.mirrors[0].seen;
    assert!(seen.voided == 2 && seen.parts_max > 1 && seen.record_bytes_max > BATCH_BYTES_MAX, "{seen:?}");
}
