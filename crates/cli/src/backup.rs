//! `highwater backup …` and `highwater restore`: everything that a server keeps, as files.

use crate::arguments::{BackupArguments, BackupCommand};
use crate::exit::{self, Status};
use crate::manage::Server;
use crate::manage::arguments::Target;
use crate::object_store;
use crate::output::{self, Progress};
use anyhow::{Context as _, Result};
use bytes::Bytes;
use highwater_base::Digest;
use highwater_client::{BackupClient, BackupRefused, Client, Options};
use highwater_disk::{Disk, OsDisk, SystemClock, SystemRandom, system};
use highwater_host::layout::Paths;
use highwater_node::backup::{self, AbsentGroup, BackupFault, BackupPlan, Copied, CopyError, Local, Source, Verified};
use highwater_node::cluster_file::ClusterFile;
use highwater_node::{ColdOptions, Config, Node, OpenError};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Takes a backup, or checks one.
pub fn run(arguments: BackupArguments) -> Result<()> {
    if let Some(BackupCommand::Verify { backup, json }) = arguments.command {
        return verify(&backup, json);
    }
    let BackupArguments { places, data, object_store, since, except_damaged, json, .. } = arguments;
    let (of, (copied, to)) = match (data, &places[..]) {
        (Some(data), [to]) => {
            let cold =
                object_store.as_deref().map(object_store::open).transpose().map_err(exit::wrong)?.map(ColdOptions::new);
            let copied = of_directory(&data, cold, Path::new(to), since.as_deref(), except_damaged)?;
            (Of::Directory(data), (copied, PathBuf::from(to)))
        }
        (None, [url, to]) => {
            let copied = of_server(url, Path::new(to), since.as_deref(), except_damaged)?;
            (Of::Server(url.clone()), (copied, PathBuf::from(to)))
        }
        (Some(_), _) => {
            return Err(wrong("with --data there is one more argument: the folder that becomes the backup"));
        }
        (None, _) => return Err(wrong("a running server is named by its URL, and a stopped one by --data DIR")),
    };
    let left_out = LeftOut::of(&of);
    // What the server's disk gave is checked here: a block that went bad there is bad in the backup too.
    let verified = check(&to)?;
    let Copied { manifest, copied_bytes, shared_bytes } = copied;
    if json {
        output::json(&json!({
            "backup": to,
            "cluster_id": manifest.cluster_id,
            "files": manifest.files.len(),
            "bytes": manifest.bytes(),
            "copied_bytes": copied_bytes,
            "shared_bytes": shared_bytes,
            "streams": verified.streams,
            "absent": manifest.absent,
            "faults": verified.faults,
            "pds_accounts": left_out.as_ref().map_or(Some(0), |left_out| left_out.accounts),
            "pds_instead": left_out.as_ref().map(|left_out| &left_out.instead),
        }))?;
    } else {
        let mut rows = vec![
            ("backup", to.display().to_string()),
            ("cluster", manifest.cluster_id.clone()),
            ("streams", verified.streams.to_string()),
            ("files", manifest.files.len().to_string()),
            ("copied", output::bytes(copied_bytes)),
            ("shared", output::bytes(shared_bytes)),
        ];
        rows.extend(left_out.as_ref().map(|_| ("accounts", "NOT INCLUDED, see below".to_owned())));
        output::table(&rows)?;
    }
    if let Some(LeftOut { accounts, instead }) = left_out {
        let count = accounts.map_or(String::new(), |count| format!("{count} "));
        eprintln!("highwater: {count}accounts of the AT Protocol are NOT in this backup: {instead}");
    }
    sound(&to, &verified.faults)?;
    whole(&to, &manifest.absent)
}

/// Of what a backup is taken.
enum Of {
    /// The URL of a server.
    Server(String),
    /// The data directory of one that is stopped.
    Directory(PathBuf),
}

/// The accounts, which have a directory and a backup of their own.
struct LeftOut {
    /// How many there are, if somebody said so.
    accounts: Option<u64>,
    /// How they are backed up.
    instead: String,
}

impl LeftOut {
    /// Accounts that a backup of streams does not hold; none if there are none.
    fn of(of: &Of) -> Option<Self> {
        match of {
            Of::Directory(data) => {
                let accounts = data.join(crate::serve::pds::DIRECTORY);
                let instead = format!(
                    "copy {} while no server runs, or `highwater pds backup` of one that does",
                    accounts.display()
                );
                Paths::new(&accounts).layout().is_file().then_some(Self { accounts: None, instead })
            }
            Of::Server(url) => {
                let target = Target { url: url.clone(), key: None, json: false };
                // A server that serves no accounts knows no such path.
                let status = Server::new(&target).and_then(|server| server.get("/v1/pds/status"));
                let accounts = match &status {
                    Ok(status) => Some(status["accounts"]["count"].as_u64().unwrap_or_default()),
                    Err(error) if exit::is(error, Status::NotFound) => Some(0),
                    Err(_) => None,
                };
                let instead =
                    format!("highwater pds backup FOLDER --url {url}, which copies them on the server's machine");
                (accounts != Some(0)).then_some(Self { accounts, instead })
            }
        }
    }
}

fn wrong(words: impl Into<String>) -> anyhow::Error {
    exit::with(Status::Wrong, words)
}

/// Copies from a running server.
fn of_server(url: &str, to: &Path, since: Option<&Path>, except_damaged: bool) -> Result<Copied> {
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(wrong(format!("{url} is no URL of a server, such as http://127.0.0.1:4437")));
    }
    let client = Client::new(Options::from_environment()).context("cannot set up the HTTP client")?;
    let client = BackupClient::new(client, url);
    let answer = client.begin(except_damaged).map_err(|refused| not_taken(url, &refused))?;
    let plan: BackupPlan =
        serde_json::from_slice(&answer).context("the server's answer is not a backup's description")?;
    let copied = copy(&plan, &Remote { client: &client, id: &plan.id }, to, since);
    if let Err(refused) = client.end(&plan.id) {
        eprintln!("highwater: the server keeps what was deleted for some minutes more: {refused}");
    }
    copied
}

/// Copies from the directory of a stopped server, which is opened as a server would open it.
fn of_directory(
    data: &Path,
    cold: Option<ColdOptions>,
    to: &Path,
    since: Option<&Path>,
    except_damaged: bool,
) -> Result<Copied> {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::private_in(data));
    if ClusterFile::read(&*disk, data)?.is_none() {
        return Err(exit::with(Status::NotFound, format!("{} is no data directory", data.display())));
    }
    // Nothing moves while it is open.
    let cold = cold.map(|cold| ColdOptions { local_bytes_max: u64::MAX, ..cold });
    let boot_id = system::boot_id_text(&*disk);
    let config = Config { scrub_bytes_per_second: 0, boot_id, cold, ..Config::new(data) };
    let opened = Node::open(config, Arc::clone(&disk), Arc::new(SystemClock::new()), Box::new(SystemRandom));
    let node = opened.map_err(|error| match error {
        OpenError::InUse(_) => exit::with(
            Status::Later,
            format!("a server runs on {}: name its URL instead of --data, or stop it", data.display()),
        ),
        other => anyhow::Error::new(other).context(format!("cannot open {}", data.display())),
    })?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let handle = node.handle();
    let copied =
        runtime.block_on(handle.begin_backup(except_damaged)).context("no backup was taken").and_then(|plan| {
            let copied = copy(&plan, &Local { handle: &handle, id: &plan.id }, to, since);
            handle.end_backup(&plan.id);
            copied
        });
    node.shutdown().context("the directory was not closed cleanly")?;
    copied
}

fn copy(plan: &BackupPlan, source: &dyn Source, to: &Path, since: Option<&Path>) -> Result<Copied> {
    let total = plan.files.iter().map(|file| file.bytes).sum();
    let mut progress = Progress::new("copying");
    let copied = backup::copy(plan, source, &OsDisk::private(), to, since, &mut |bytes| progress.set(bytes, total));
    copied.map_err(|error| match error {
        CopyError::NotEmpty(_) | CopyError::Since(_) => error.into(),
        other => {
            let folder = to.display();
            anyhow::Error::new(other).context(format!("no backup was made; what lies in {folder} can be removed"))
        }
    })
}

/// A running server.
struct Remote<'a> {
    client: &'a BackupClient,
    id: &'a str,
}

impl Source for Remote<'_> {
    fn read(&self, path: &str, offset: u64, length: u64) -> Result<Bytes, String> {
        self.client.read(self.id, path, offset, length).map_err(|refused| refused.to_string())
    }

    fn digest(&self, path: &str) -> Result<Digest, String> {
        let digest = self.client.digest(self.id, path).map_err(|refused| refused.to_string())?;
        Digest::parse(&digest).ok_or_else(|| format!("the answer is no digest: {digest}"))
    }
}

fn not_taken(url: &str, refused: &BackupRefused) -> anyhow::Error {
    let (status, words) = match refused.status {
        0 => (Status::Later, format!("{url}: no answer ({refused}); is the server running?")),
        429 | 503 => (Status::Later, format!("{url}: {refused}; no backup was taken")),
        _ => (Status::Failed, format!("{url}: {refused}; no backup was taken")),
    };
    exit::with(status, words)
}

fn check(backup: &Path) -> Result<Verified> {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new());
    let mut progress = Progress::new("checking");
    let total = backup::Manifest::read(&*disk, backup)?.bytes() * 2;
    Ok(backup::verify(&disk, backup, &mut |bytes| progress.set(bytes, total))?)
}

fn verify(backup: &Path, json: bool) -> Result<()> {
    let Verified { manifest, streams, faults } = check(backup)?;
    if json {
        output::json(&json!({
            "backup": backup,
            "cluster_id": manifest.cluster_id,
            "began_ms": manifest.began_ms,
            "files": manifest.files.len(),
            "bytes": manifest.bytes(),
            "streams": streams,
            "absent": manifest.absent,
            "faults": faults,
        }))?;
    } else {
        output::table(&[
            ("backup", backup.display().to_string()),
            ("cluster", manifest.cluster_id.clone()),
            ("streams", streams.to_string()),
            ("files", manifest.files.len().to_string()),
            ("bytes", output::bytes(manifest.bytes())),
            ("faults", faults.len().to_string()),
        ])?;
    }
    sound(backup, &faults)?;
    whole(backup, &manifest.absent)
}

/// An error that names every group that is not in a backup, if there is one.
fn whole(backup: &Path, absent: &[AbsentGroup]) -> Result<()> {
    if absent.is_empty() {
        return Ok(());
    }
    let mut words = format!("{} does not hold {} groups, which were damaged:", backup.display(), absent.len());
    for AbsentGroup { group, why } in absent {
        words.push_str(&format!("\n  {group}: {why}"));
    }
    words.push_str("\nKeep the damaged directory: nothing else has the streams of these groups");
    Err(exit::with(Status::Partly, words))
}

/// An error that names everything that cannot be believed, if there is something.
fn sound(backup: &Path, faults: &[BackupFault]) -> Result<()> {
    if faults.is_empty() {
        return Ok(());
    }
    let mut words = format!("{} is damaged in {} places:", backup.display(), faults.len());
    for BackupFault { file, what, stream } in faults {
        let of = stream.as_ref().map_or(String::new(), |stream| format!(" (stream {stream})"));
        words.push_str(&format!("\n  {file}: {what}{of}"));
    }
    Err(exit::with(Status::Differs, words))
}

/// Puts a backup into an empty directory.
pub fn restore(backup: &Path, data: &Path, except_damaged: bool, json: bool) -> Result<()> {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::private_in(data));
    let total = backup::Manifest::read(&*disk, backup)?.bytes();
    let mut progress = Progress::new("restoring");
    let mut told = |bytes| progress.set(bytes, total);
    let restored = backup::restore(&disk, backup, data, except_damaged, &mut SystemRandom, &mut told)
        .with_context(|| format!("{} was not restored", data.display()))?;
    drop(progress);
    let manifest = restored.manifest;
    if json {
        output::json(&json!({
            "data": data,
            "cluster_id": manifest.cluster_id,
            "began_ms": manifest.began_ms,
            "files": manifest.files.len(),
            "bytes": manifest.bytes(),
            "absent": manifest.absent,
        }))?;
    } else {
        output::table(&[
            ("data", data.display().to_string()),
            ("cluster", manifest.cluster_id.clone()),
            ("files", manifest.files.len().to_string()),
            ("bytes", output::bytes(manifest.bytes())),
        ])?;
    }
    whole(backup, &manifest.absent)
}
