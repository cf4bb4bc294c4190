//! Random SQL from a seed, and its answers as text.

use rusqlite::Connection;
use rusqlite::types::ValueRef;

/// A small generator; the same seed gives the same script.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }

    fn one_of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len() as u64) as usize]
    }

    fn blob(&mut self, length: u64) -> Vec<u8> {
        // Compressible, like most pages are.
        let fill = self.next() as u8;
        (0..length).map(|at| if at % 7 == 0 { self.next() as u8 } else { fill }).collect()
    }
}

/// One statement with its parameter.
pub struct Step {
    pub sql: String,
    pub blob: Option<Vec<u8>>,
}

const TABLES: [&str; 4] = ["t0", "t1", "t2", "w0"];

/// The statements with which every script starts.
pub fn schema() -> Vec<String> {
    let mut sql: Vec<String> =
        TABLES[..3].iter().map(|name| format!("CREATE TABLE {name}(id INTEGER PRIMARY KEY, a INT, b BLOB)")).collect();
    sql.push("CREATE TABLE w0(id INT PRIMARY KEY, a INT, b BLOB) WITHOUT ROWID".into());
    sql.push("CREATE INDEX i0 ON t0(a, b)".into());
    sql.push("CREATE VIRTUAL TABLE f0 USING fts5(words)".into());
    sql
}

impl Step {
    fn new(sql: impl Into<String>) -> Self {
        Self { sql: sql.into(), blob: None }
    }

    /// The next statement of a script over pages of this size.
    pub fn draw(random: &mut Random, page_size: u64) -> Self {
        let table = random.one_of(&TABLES);
        let (id, number) = (random.below(60), random.below(1_000));
        match random.below(100) {
            0..=34 => {
                let length = match random.below(10) {
                    0 => page_size * 3 + random.below(page_size),
                    1..=3 => random.below(page_size),
                    _ => random.below(60),
                };
                let sql = format!("INSERT OR REPLACE INTO {table} VALUES ({id}, {number}, ?1)");
                Self { sql, blob: Some(random.blob(length)) }
            }
            35..=46 => Self::new(format!("UPDATE {table} SET a = a + {number} WHERE id % {} = 0", 1 + id)),
            47..=56 => Self::new(format!("DELETE FROM {table} WHERE id BETWEEN {id} AND {}", id + random.below(12))),
            57..=59 => Self::new(format!("INSERT INTO f0 VALUES ('word{number} tide{id} high water')")),
            60 => Self::new(format!("DELETE FROM f0 WHERE f0 MATCH 'tide{id}'")),
            61..=66 => Self::new("BEGIN"),
            67 => Self::new("BEGIN IMMEDIATE"),
            68..=73 => Self::new("COMMIT"),
            74..=75 => Self::new("ROLLBACK"),
            76..=78 => Self::new("SAVEPOINT s"),
            79..=80 => Self::new("ROLLBACK TO s"),
            81..=82 => Self::new("RELEASE s"),
            83 => Self::new("VACUUM"),
            84..=85 => Self::new(format!("PRAGMA incremental_vacuum({})", random.below(8))),
            86..=87 => Self::new(format!(
                "PRAGMA wal_checkpoint({})",
                random.one_of(&["PASSIVE", "FULL", "RESTART", "TRUNCATE"])
            )),
            88 => Self::new(format!("PRAGMA cache_size={}", random.one_of(&["10", "100", "-2000"]))),
            89 => Self::new(format!("CREATE INDEX IF NOT EXISTS x{} ON {table}(a)", id % 4)),
            90 => Self::new(format!("DROP INDEX IF EXISTS x{}", id % 4)),
            91 => Self::new(format!("CREATE TABLE IF NOT EXISTS n{} AS SELECT * FROM {table}", id % 3)),
            92 => Self::new(format!("DROP TABLE IF EXISTS n{}", id % 3)),
            93 => Self::new(format!("CREATE TEMP TABLE IF NOT EXISTS tt AS SELECT * FROM {table}")),
            94 => Self::new(format!("INSERT OR IGNORE INTO {table} SELECT id + 100, a, b FROM tt")),
            95 => Self::new(format!("INSERT OR REPLACE INTO other.o VALUES ({id}, {number})")),
            96 => Self::new(format!("DELETE FROM {table} WHERE id > 50")),
            97 => Self::new(format!("SELECT id, a, length(b) FROM {table} ORDER BY a, id")),
            98 => Self::new("SELECT rowid, words FROM f0 WHERE f0 MATCH 'high' ORDER BY rowid"),
            _ => Self::new(format!("SELECT count(*), sum(a), total(length(b)) FROM {table}")),
        }
    }

    /// Runs it; rows or the error as text.
    pub fn run(&self, connection: &Connection) -> String {
        self.try_run(connection).unwrap_or_else(|error| format!("error: {error}"))
    }

    fn try_run(&self, connection: &Connection) -> rusqlite::Result<String> {
        let mut statement = connection.prepare(&self.sql)?;
        let columns = statement.column_count();
        let mut rows = match &self.blob {
            Some(blob) => statement.query([blob])?,
            None => statement.query([])?,
        };
        let mut text = String::new();
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                match row.get_ref(column)? {
                    ValueRef::Text(value) => text.push_str(&String::from_utf8_lossy(value)),
                    other => text.push_str(&format!("{other:?}")),
                }
                text.push('|');
            }
            text.push('\n');
        }
        Ok(text)
    }
}
