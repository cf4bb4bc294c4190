//! The accounts of the AT Protocol beside the node: opened, served, and closed.
//!
//! Accounts that do not open keep nobody else from being served: their paths answer 503 and say why, as the status and the log
//! do.

mod relays;
mod told;

use crate::config::{PdsSettings, Settings};
use crate::exit;
use anyhow::{Context as _, Result};
use highwater_disk::{OsDisk, SystemClock, SystemRandom};
use highwater_host::seal::KeyFile;
use highwater_host::{Boot, Host, Running, Sealer, Seams};
use highwater_http::mount::{Mounted, Routers};
use highwater_pds::lifecycle::Announce;
use highwater_pds::names::Zone;
use highwater_xrpc::{Auth, AuthOptions, Context, operator};
use relays::Relays;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The directory of the accounts in a data directory.
pub const DIRECTORY: &str = "pds";
/// What remembers them in the data directory, when that directory alone goes back or is gone.
const WITNESS_BESIDE: &str = "pds.known";

/// How long sockets get to say goodbye: the surface bounds each by itself, and this is for all of them.
const CLOSING_WITHIN: Duration = Duration::from_secs(8);

/// The accounts while the server runs.
pub struct Accounts {
    /// What the listeners serve.
    pub mounted: Mounted,
    open: Option<Open>,
}

struct Open {
    context: Arc<Context>,
    running: Running,
    relays: Arc<Relays>,
    boot: Boot,
}

/// The key under which secrets are stored.
///
/// # Errors
/// If the file is not there, or is none.
pub fn sealer(path: &Path) -> Result<Arc<dyn Sealer>> {
    let key = KeyFile::read(&OsDisk::new(), path).context("pds.encryption_file")?;
    Ok(Arc::new(key))
}

/// How the accounts are kept.
fn host_options(settings: &PdsSettings, data: &Path, zone: &Zone) -> highwater_host::Options {
    highwater_host::Options {
        announce: if settings.on_first_write { Announce::OnFirstWrite } else { Announce::OnActivation },
        retention_seconds: settings.events_seconds,
        events_bytes_max: settings.events_bytes_max,
        account_limit: settings.account_limit,
        witness_path: settings.witness_path.clone(),
        witness_beside_path: Some(data.join(WITNESS_BESIDE)),
        ..highwater_host::Options::new(data.join(DIRECTORY), zone.to_string())
    }
}

/// How they are served.
fn xrpc_options(settings: &PdsSettings, zone: &Zone) -> highwater_xrpc::Options {
    let mut options = highwater_xrpc::Options::new(zone);
    if let Some(url) = &settings.url_public {
        options.public_url.clone_from(url);
    }
    options.contact.clone_from(&settings.contact);
    options.blob_bytes_max = settings.blob_bytes_max;
    match settings.rates {
        None => options.rates.enabled = false,
        Some([requests, hour, day, sessions]) => {
            options.rates.requests_per_5_min = requests;
            options.rates.points_per_hour = hour;
            options.rates.points_per_day = day;
            options.rates.sessions_per_5_min = sessions;
        }
    }
    options
}

/// Opens the accounts of a data directory, or makes them; none if the settings want none.
///
/// # Errors
/// If the settings are wrong. Accounts that do not open are no error of the server's.
pub async fn open(settings: &Settings, data: &Path, local: Option<SocketAddr>) -> Result<Option<Accounts>> {
    let Some(pds) = settings.pds().map_err(exit::wrong)? else { return Ok(None) };
    pds.check_files().map_err(exit::wrong)?;
    for note in pds.notes(data) {
        tracing::warn!(event = "pds_settings", "{note}");
    }
    let Some(zone) = pds.zone_at(local) else {
        let why = "no zone is set (pds.zone), and without one accounts are served on a loopback listener alone";
        return Ok(Some(Accounts { mounted: told::refused(why.to_owned()), open: None }));
    };
    let (opening, data) = (pds.clone(), data.to_path_buf());
    let opened = tokio::task::spawn_blocking(move || start(&opening, &data, &zone)).await?;
    Ok(Some(opened.unwrap_or_else(|error| {
        let why = format!("{error:#}");
        tracing::error!(
            event = "pds_not_opened",
            why,
            "the accounts of the AT Protocol are not served, and their files are as they were; streams are served. What to do \
             is in the runbook about damage"
        );
        Accounts { mounted: told::refused(why), open: None }
    })))
}

/// Opens them and does what a start does, on a thread that may wait for the disk.
fn start(settings: &PdsSettings, data: &Path, zone: &Zone) -> Result<Accounts> {
    let sealer = settings.encryption_file.as_deref().map(sealer).transpose()?;
    let seams = Seams {
        disk: Arc::new(OsDisk::private_in(&data.join(DIRECTORY))),
        clock: Arc::new(SystemClock::new()),
        random: Box::new(SystemRandom),
        sealer,
    };
    let (host, worker, boot) = Host::open(host_options(settings, data, zone), seams)?;
    let running = worker.spawn().context("cannot start the threads of the accounts")?;
    let admin_password = settings.admin_password_file.as_deref().map(read_password).transpose()?;
    let auth = Auth::open(&host, AuthOptions { admin_password, ..AuthOptions::default() })?;
    let relays = Arc::new(Relays::new(settings, xrpc_options(settings, zone).public_url));
    let seams = highwater_xrpc::Seams {
        clock: Arc::new(SystemClock::new()),
        random: Box::new(SystemRandom),
        gatekeeper: Arc::new(auth),
    };
    let context = Arc::new(Context::new(host.clone(), xrpc_options(settings, zone), seams));
    let routers = Routers {
        xrpc: highwater_xrpc::router(context.clone()),
        operator: operator::router(context.clone(), relays.clone()),
    };
    let mounted = Mounted { routers: Ok(routers), told: Arc::new(told::Page(host, context.clone(), relays.clone())) };
    Ok(Accounts { mounted, open: Some(Open { context, running, relays, boot }) })
}

/// The first line of the administrator's file.
fn read_password(path: &Path) -> Result<String> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("pds.admin_password_file = {}", path.display()))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

impl Accounts {
    /// Begins what goes on in the background, now that the listeners are open: relays are told, and uploads that nobody
    /// referred to are let go.
    pub fn begin(&self) {
        let Some(open) = &self.open else { return };
        tokio::spawn(highwater_xrpc::upkeep(open.context.clone()));
        if !open.relays.check_on_boot {
            if open.boot.relay_poke_pending {
                tracing::warn!(
                    event = "relay_poke_pending",
                    "relays may hold what this server does not: run `highwater pds announce`"
                );
            }
            return;
        }
        let (relays, host) = (open.relays.clone(), open.context.host.clone());
        let pending = open.boot.relay_poke_pending;
        tokio::task::spawn_blocking(move || relays.watch(&host, pending));
    }

    /// Lets the subscribers of the stream go. What writes goes on.
    pub async fn part(&self) {
        let Some(open) = &self.open else { return };
        open.relays.stop();
        if tokio::time::timeout(CLOSING_WITHIN, open.context.close()).await.is_err() {
            tracing::warn!(event = "sockets_cut", "subscribers of the stream were cut when the server stopped");
        }
    }

    /// Closes the accounts, once nobody asks any more.
    ///
    /// # Errors
    /// If their log did not close cleanly.
    pub async fn stop(self) -> Result<()> {
        let Some(open) = self.open else { return Ok(()) };
        let stopped = tokio::task::spawn_blocking(move || open.running.stop()).await?;
        stopped.map_err(anyhow::Error::msg).context("the accounts did not close cleanly")
    }
}
