//! A server of repositories, and accounts on it.

use crate::process::Usage;
use crate::subject::request;
use crate::wire::Wire;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to be ready, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// An account that is logged in.
#[derive(Debug, Clone)]
pub struct Account {
    /// Its DID.
    pub did: String,
    /// What it shows with each request.
    pub token: String,
}

impl Account {
    /// Logs in.
    pub fn log_in(address: SocketAddr, did: &str, password: &str) -> Result<Self> {
        let body = json!({ "identifier": did, "password": password });
        let session = post(address, "com.atproto.server.createSession", None, &body)?;
        Ok(Self { did: did.to_owned(), token: session["accessJwt"].as_str().context("a token")?.to_owned() })
    }

    /// The header that says who asks.
    pub fn authorization(&self) -> String {
        format!("Authorization: Bearer {}\r\n", self.token)
    }
}

/// A server that runs.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Where it listens.
    pub address: SocketAddr,
    /// Accounts that write.
    pub accounts: Vec<Account>,
    /// Its process, if its memory and time are to be told.
    pub pid: Option<u32>,
}

impl Subject {
    /// What its process has used, if it is known.
    pub fn usage(&self) -> Option<Usage> {
        self.pid.and_then(|pid| Usage::of(pid).ok())
    }
}

/// Calls a procedure once; returns what it answered.
pub fn post(address: SocketAddr, method: &str, account: Option<&Account>, body: &Value) -> Result<Value> {
    let headers =
        format!("Content-Type: application/json\r\n{}", account.map(Account::authorization).unwrap_or_default());
    let request = request("POST", &format!("/xrpc/{method}"), &headers, body.to_string().as_bytes());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut wire = Wire::connect(address).await?;
        wire.send(&request).await?;
        let mut answer = Vec::new();
        let head = wire.receive(|piece| answer.extend_from_slice(piece)).await?;
        ensure!(head.status == 200, "{method}: {} {}", head.status, String::from_utf8_lossy(&answer));
        Ok(serde_json::from_slice(&answer)?)
    })
}

/// `highwater serve` in a process of its own, killed when dropped; the program lies beside this one.
pub struct Host {
    child: Child,
    address: SocketAddr,
}

impl Host {
    /// Serves a new directory below this one, without limits on how often may be asked.
    pub fn start(directory: &Path) -> Result<Self> {
        Self::start_at(directory, free_address()?)
    }

    /// Serves the directory `server` below this one at an address.
    pub fn start_at(directory: &Path, address: SocketAddr) -> Result<Self> {
        let child = Command::new(program()?)
            .args(["serve", "--listen", &address.to_string(), "--pds-rate-limits", "false", "--data"])
            .arg(directory.join("server"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("`highwater` is missing beside this program: build it with the same profile")?;
        let mut host = Self { child, address };
        host.wait()?;
        Ok(host)
    }

    fn wait(&mut self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            ensure!(self.child.try_wait()?.is_none(), "the server ended");
            let ready = runtime
                .block_on(async { Wire::connect(self.address).await?.ask(&request("GET", "/readyz", "", b"")).await });
            if ready.is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        anyhow::bail!("the server did not become ready")
    }

    /// How many accounts it serves.
    pub fn accounts(&self) -> Result<usize> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let (mut wire, mut answer) = (Wire::connect(self.address).await?, Vec::new());
            wire.send(&request("GET", "/v1/pds/status", "", b"")).await?;
            let head = wire.receive(|piece| answer.extend_from_slice(piece)).await?;
            ensure!(head.status == 200, "status: {} {}", head.status, String::from_utf8_lossy(&answer));
            let status: Value = serde_json::from_slice(&answer)?;
            Ok(status["accounts"]["active"].as_u64().context("accounts in the status")? as usize)
        })
    }

    /// What its process has used.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.child.id())
    }

    /// It, to be measured, with as many accounts as clients write at once.
    pub fn subject(&self) -> Result<Subject> {
        const ACCOUNTS: usize = 8;
        let accounts = (0..ACCOUNTS).map(|_| self.account()).collect::<Result<_>>()?;
        Ok(Subject { address: self.address, accounts, pid: Some(self.child.id()) })
    }

    fn account(&self) -> Result<Account> {
        let url = format!("http://{}", self.address);
        let words = ["pds", "account", "create", "--json", "--url", &url];
        let made = Command::new(program()?).args(words).output()?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let made: Value = serde_json::from_slice(&made.stdout)?;
        let text = |name: &str| made[name].as_str().with_context(|| format!("{name} of an account"));
        Account::log_in(self.address, text("did")?, text("password")?)
    }
}

/// An address that nobody listens at.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn program() -> Result<std::path::PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("highwater"))
}

impl Drop for Host {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
