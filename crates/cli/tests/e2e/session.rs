//! A Python process with the extension that runs one statement after the other, and can be killed in between.

use crate::bed::{extension, highwater, program, script, text};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Debian's Python, which can load extensions, with Debian's SQLite.
pub const PYTHON: &str = "/usr/bin/python3";

/// The URI by which a database is opened through the extension.
pub fn uri(path: &Path) -> String {
    format!("file:{}?vfs=highwater", path.display())
}

/// Why a statement failed.
#[derive(Debug)]
pub struct Failed {
    /// SQLite's name of the error, `SQLITE_BUSY` for example.
    pub name: String,
    pub message: String,
}

/// One process and its connections.
pub struct Session {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Session {
    /// Debian's Python with the extension loaded.
    pub fn python() -> Self {
        Self::start(PYTHON, "sqlite3", &[])
    }

    /// `python` with the SQLite of `module`, which is `sqlite3` or `apsw`.
    pub fn start(python: impl AsRef<OsStr>, module: &str, environment: &[(&str, &str)]) -> Self {
        let mut command: Command = program(python);
        command.arg(script("session.py")).arg(extension()).arg(module).envs(environment.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("Python can be run");
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut session = Self { process, input, output };
        let hello = session.answer();
        assert!(hello.get("sqlite").is_some(), "the session did not begin: {hello}");
        session
    }

    /// Debian's Python with a database open through the named VFS.
    pub fn on(path: &Path) -> Self {
        let mut session = Self::python();
        session.open("main", &uri(path)).expect("the database opens");
        session
    }

    fn ask(&mut self, request: &Value) -> Value {
        let input = self.input.as_mut().expect("the session is open");
        writeln!(input, "{request}").expect("the process reads");
        self.answer()
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the process writes");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("the process said {line:?}: {error}"))
    }

    fn outcome(answer: &Value) -> Result<(), Failed> {
        let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        match answer.get("error") {
            None => Ok(()),
            Some(_) => Err(Failed { name: text("name"), message: text("error") }),
        }
    }

    /// Opens a connection under a name of its own.
    pub fn open(&mut self, connection: &str, uri: &str) -> Result<(), Failed> {
        Self::outcome(&self.ask(&json!({ "do": "open", "connection": connection, "uri": uri })))
    }

    /// Runs one statement on `main`; its rows.
    pub fn run(&mut self, sql: &str) -> Result<Vec<Value>, Failed> {
        self.timed(sql).map(|(rows, _)| rows)
    }

    /// Runs one statement on `main`; its rows, and the time it took there.
    pub fn timed(&mut self, sql: &str) -> Result<(Vec<Value>, Duration), Failed> {
        let answer = self.ask(&json!({ "do": "run", "connection": "main", "sql": sql }));
        Self::outcome(&answer)?;
        let rows = answer["rows"].as_array().cloned().unwrap_or_default();
        Ok((rows, Duration::from_secs_f64(answer["seconds"].as_f64().unwrap_or_default())))
    }

    /// The single value of a statement's single row.
    #[track_caller]
    pub fn value(&mut self, sql: &str) -> Value {
        let rows = self.run(sql).unwrap_or_else(|failed| panic!("{sql}: {failed:?}"));
        rows.first().map(|row| row[0].clone()).unwrap_or_else(|| panic!("{sql} has no row"))
    }

    /// Runs statements that must succeed.
    #[track_caller]
    pub fn all(&mut self, statements: &[&str]) {
        for sql in statements {
            if let Err(failed) = self.run(sql) {
                panic!("{sql}: {failed:?}");
            }
        }
    }

    /// Waits until the stream holds every commit of the database.
    #[track_caller]
    pub fn synced(&mut self, path: &Path) {
        self.value(&format!("SELECT highwater_synced('{}', 30000)", path.display()));
    }

    /// The database's status, as its process tells it.
    #[track_caller]
    pub fn status(&mut self, path: &Path) -> Value {
        let page = self.value(&format!("SELECT highwater_status('{}')", path.display()));
        serde_json::from_str(page.as_str().unwrap_or_default()).expect("the status is JSON")
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.end();
    }

    /// Closes every connection and ends.
    pub fn finish(mut self) {
        self.input = None;
        let status = self.process.wait().expect("it ends");
        assert!(status.success(), "the session ended with {status}");
    }

    fn end(&mut self) {
        if let Err(error) = self.process.kill().and_then(|()| self.process.wait()) {
            eprintln!("the session could not be ended: {error}");
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

/// What `highwater db status` shows of a database; `None` until its owner published something.
pub fn published(file: &Path) -> Option<Value> {
    let ran = highwater(["db", "status", text(file), "--json"]);
    (ran.status == 0).then(|| ran.json())
}

/// A database bound to a new stream of the server.
pub fn bound(folder: &Path, url: &str) -> PathBuf {
    let path = folder.join("app.db");
    highwater(["db", "bind", text(&path), url]).ok();
    path
}
