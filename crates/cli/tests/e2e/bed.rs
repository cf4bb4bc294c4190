//! What every test stands on: a folder on the real disk, a server that can be killed, and the `highwater` program.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// How long a server, or anything else that must happen, may take on a busy machine.
pub const SOON: Duration = Duration::from_secs(30);

/// Variables that would change what the programs under test do.
const VARIABLES: [&str; 22] = [
    "HIGHWATER_URL",
    "HIGHWATER_TOKEN",
    "HIGHWATER_TOKEN_FILE",
    "HIGHWATER_CA_FILE",
    "HIGHWATER_DEFAULT_VFS",
    "HIGHWATER_DATA",
    "HIGHWATER_LISTEN",
    "HIGHWATER_GROUPS",
    "HIGHWATER_LOG_BYTES_MAX",
    "HIGHWATER_LOG",
    "HIGHWATER_LOG_FORMAT",
    "HIGHWATER_LOG_REQUESTS",
    "HIGHWATER_TLS_CERTIFICATE",
    "HIGHWATER_TLS_KEY",
    "HIGHWATER_BEHIND_PROXY",
    "HIGHWATER_PUBLIC_URL",
    "HIGHWATER_CORS_ORIGINS",
    "HIGHWATER_OBJECT_STORE",
    "HIGHWATER_PDS_ENABLED",
    "HIGHWATER_PDS_ZONE",
    "HIGHWATER_PDS_PUBLIC_URL",
    "HIGHWATER_PDS_RELAYS",
];

/// A folder below the build's own, because `/tmp` may be memory.
pub fn folder() -> tempfile::TempDir {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(parent).expect("the build's folder for temporary files");
    tempfile::tempdir_in(parent).expect("a temporary folder")
}

/// The folder with the tests' Python scripts.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts").join(name)
}

/// The extension, as cargo built it together with this program.
pub fn extension() -> PathBuf {
    let program = std::env::current_exe().expect("this program's path");
    let name = format!("{}highwater_sqlite{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let library = program.parent().expect("target/debug/deps").join(name);
    assert!(library.is_file(), "{} is not there; run `cargo build -p highwater-sqlite`", library.display());
    library
}

/// A program that nothing of the caller's environment reaches.
pub fn program(path: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(path);
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// Looks every few milliseconds until `found` gives something; fails with `what` if it never does.
pub fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {SOON:?} in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A port that nothing listens on. Below the range from which the system draws ports for outgoing connections: a client
/// that keeps trying a port of that range, while its server is down, may one day reach itself.
pub fn free_port() -> u16 {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let spread = (std::process::id().wrapping_mul(37) % u32::from(COUNT)) as u16;
        let port = FIRST + spread.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Copies a folder with everything in it.
pub fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the folder can be made");
    for entry in fs::read_dir(from).expect("it can be listed") {
        let path = entry.expect("it can be listed").path();
        let target = to.join(path.file_name().expect("it has a name"));
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            fs::copy(&path, &target).expect("it can be copied");
        }
    }
}

/// Sends a signal to a process that this test started.
pub fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal).expect("the process is there");
}

/// `highwater serve` on a directory and a port that it keeps through every restart.
pub struct Server {
    pub data: PathBuf,
    pub port: u16,
    /// Further words of its command line.
    pub options: Vec<String>,
    /// A file of settings that names its listeners, one of which takes the port.
    pub config: Option<PathBuf>,
    process: Option<Child>,
}

impl Server {
    /// A server on `folder/server` that does not run yet.
    pub fn new(folder: &Path) -> Self {
        Self { data: folder.join("server"), port: free_port(), options: Vec::new(), config: None, process: None }
    }

    /// A server on `folder/server`, ready.
    pub fn start(folder: &Path) -> Self {
        let mut server = Self::new(folder);
        server.restart();
        server
    }

    /// The command line of a server on `data` and `port`.
    pub fn command(data: &Path, port: u16) -> Command {
        let mut command = program(env!("CARGO_BIN_EXE_highwater"));
        command.arg("serve").arg("--data").arg(data).args(["--listen", &format!("127.0.0.1:{port}")]);
        command
    }

    /// Starts it again on the same directory and port, and waits until it is ready.
    pub fn restart(&mut self) {
        self.launch();
        let ready = format!("http://127.0.0.1:{}/readyz", self.port);
        wait_for("the server to be ready", || {
            let process = self.process.as_mut().expect("it was started");
            if let Some(status) = process.try_wait().expect("its state can be asked") {
                panic!("the server ended with {status}:\n{}", self.log());
            }
            ureq::get(&ready).call().ok()
        });
    }

    /// Starts it and does not wait.
    pub fn launch(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        let log = File::options().create(true).append(true).open(self.log_path()).expect("its log can be written");
        let mut command = match &self.config {
            None => Self::command(&self.data, self.port),
            Some(file) => {
                let mut command = program(env!("CARGO_BIN_EXE_highwater"));
                command.arg("serve").arg("--data").arg(&self.data).arg("--config").arg(file);
                command
            }
        };
        let process = command.args(&self.options).stdout(Stdio::null()).stderr(log).spawn();
        self.process = Some(process.expect("highwater can be run"));
    }

    fn log_path(&self) -> PathBuf {
        self.data.with_extension("log")
    }

    /// What it said since its first start.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// The URL of a stream.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/v1/stream/{path}", self.port)
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.kill().expect("it can be killed");
        process.wait().expect("it ends");
    }

    /// SIGTERM, and the status with which it ends.
    pub fn terminate(&mut self) -> ExitStatus {
        signal(self.process.as_ref().expect("it runs"), Signal::TERM);
        let mut process = self.process.take().expect("it runs");
        wait_for("the server to end", || process.try_wait().expect("its state can be asked"))
    }

    /// Bytes of memory that it held at the most.
    pub fn memory_peak(&self) -> u64 {
        let id = self.process.as_ref().expect("it runs").id();
        let status = fs::read_to_string(format!("/proc/{id}/status")).expect("its state can be read");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kibibytes.expect("the kernel says so") << 10
    }

    /// SIGHUP.
    pub fn hang_up(&self) {
        signal(self.process.as_ref().expect("it runs"), Signal::HUP);
    }

    /// SIGSTOP: it keeps its connections and answers nothing.
    pub fn pause(&self) {
        signal(self.process.as_ref().expect("it runs"), Signal::STOP);
    }

    /// SIGCONT.
    pub fn resume(&self) {
        signal(self.process.as_ref().expect("it runs"), Signal::CONT);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let ended = process.kill().and_then(|()| process.wait());
            if let Err(error) = ended {
                eprintln!("the server could not be ended: {error}");
            }
        }
    }
}

/// How a run of a program ended, and what it said.
pub struct Ran {
    pub status: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
    line: String,
}

impl Ran {
    /// Runs a program to its end with `input` as its standard input.
    pub fn of(command: &mut Command, input: &[u8]) -> Self {
        let line = format!("{command:?}");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{line}: {error}"));
        let mut stdin = child.stdin.take().expect("it is piped");
        let output = std::thread::scope(|scope| {
            // A program that ends without reading all of it is no failure of the test's.
            scope.spawn(move || drop(stdin.write_all(input)));
            child.wait_with_output().expect("it ends")
        });
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Self { status: output.status.code().unwrap_or(-1), stdout: output.stdout, stderr, line }
    }

    /// Runs a program that may not be there.
    pub fn try_of(command: &mut Command) -> Option<Self> {
        Path::new(command.get_program()).exists().then(|| Self::of(command, b""))
    }

    /// What it printed, if it succeeded.
    #[track_caller]
    pub fn ok(&self) -> String {
        let text = String::from_utf8_lossy(&self.stdout).into_owned();
        assert_eq!(self.status, 0, "{}\n{text}{}", self.line, self.stderr);
        text
    }

    /// The JSON value it printed, if it succeeded.
    #[track_caller]
    pub fn json(&self) -> Value {
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}\n{error} in {text}", self.line))
    }

    /// Its error, if it ended with `status` and says each of `words`.
    #[track_caller]
    pub fn fails(&self, status: i32, words: &[&str]) -> &str {
        let out = String::from_utf8_lossy(&self.stdout);
        assert_eq!(self.status, status, "{}\n{out}{}", self.line, self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "{}\nlacks {word:?}: {}", self.line, self.stderr);
        }
        &self.stderr
    }
}

/// Runs the `highwater` program.
pub fn highwater<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    highwater_with(arguments, b"")
}

/// Runs the `highwater` program with an input.
pub fn highwater_with<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>, input: &[u8]) -> Ran {
    Ran::of(program(env!("CARGO_BIN_EXE_highwater")).args(arguments), input)
}

/// A path as text, for a command line.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("the path is text")
}
