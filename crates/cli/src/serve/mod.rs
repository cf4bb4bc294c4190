//! `highwater serve`: the server, from its settings to its clean end.

pub mod data;
mod exposure;
pub mod log;
pub mod pds;
mod supervisor;

pub use exposure::Planned;

use crate::arguments::ServeArguments;
use crate::config::Settings;
use crate::exit::{self, Status};
use anyhow::{Context as _, Result, bail};
use highwater_disk::{OsDisk, SystemClock, SystemRandom};
use highwater_http::{HttpOptions, Lanes, Server, Tls};
use highwater_node::{Config, Handle, Node};
use std::path::Path;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// Runs the server until a signal or a failure ends it.
pub fn run(arguments: &ServeArguments) -> Result<()> {
    let settings = settings(arguments)?;
    if arguments.print_config {
        print!("{}", settings.print());
        return Ok(());
    }
    log::start(&settings).map_err(exit::wrong)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let served = runtime.block_on(serve(&settings));
    // Whatever still blocks, such as a look at a certificate on a mount that hangs, is left where it is.
    runtime.shutdown_timeout(LEFTOVERS_WITHIN);
    served
}

/// The settings of a command line.
pub fn settings(arguments: &ServeArguments) -> Result<Settings> {
    let file = arguments.config.as_deref().map(Settings::load_file).transpose()?;
    Settings::resolve(&arguments.flags, |name| std::env::var(name).ok(), file.as_ref()).map_err(exit::wrong)
}

/// The node's settings.
pub fn config(settings: &Settings) -> Result<Config> {
    let mut config = Config::new(settings.data());
    config.groups = settings.groups()?;
    config.wal_bytes_max = settings.log_bytes_max()?;
    config.scrub_bytes_per_second = settings.scrub_bytes_per_second()?;
    config.hot_metadata_bytes = settings.hot_metadata_bytes()?;
    config.compaction_bytes_per_second = settings.compaction_bytes_per_second()?;
    config.cold = settings.cold()?;
    config.boot_id = highwater_disk::system::boot_id_text(&OsDisk::new());
    Ok(config)
}

/// The listeners of the settings, judged as far as they can be before the data is opened.
pub async fn plan(settings: &Settings) -> Result<Vec<Planned>> {
    let accounts_public = settings.pds().map_err(exit::wrong)?.is_some_and(|pds| pds.is_public());
    let mut planned = Vec::new();
    for listener in settings.listeners().map_err(exit::wrong)? {
        let listener = Planned::new(listener, accounts_public).await?;
        if let Some(other) = planned.iter().find(|other: &&Planned| other.collides(&listener)) {
            let (one, two) = (&other.settings.name, &listener.settings.name);
            return Err(exit::with(Status::Wrong, format!("{one} and {two} take the same port of the same address")));
        }
        planned.push(listener);
    }
    if accounts_public && !planned.iter().any(|listener| listener.settings.services.xrpc) {
        return Err(exit::with(
            Status::Wrong,
            "pds.zone or pds.public_url is set, and no listener has the service xrpc: nobody could reach the accounts. Add xrpc to \
             the services of a listener, or set pds.enabled = false",
        ));
    }
    Ok(planned)
}

/// The first listener that serves accounts and that this machine alone reaches: without a zone its port is part of their
/// names.
pub fn local(planned: &[Planned]) -> Option<std::net::SocketAddr> {
    let mut local = planned.iter().filter(|listener| listener.settings.services.xrpc && listener.is_direct());
    local.next().map(|listener| listener.address)
}

async fn serve(settings: &Settings) -> Result<()> {
    let config = config(settings).map_err(exit::wrong)?;
    let options =
        HttpOptions { requests_logged: settings.log_requests().map_err(exit::wrong)?, ..HttpOptions::default() };
    let planned = plan(settings).await?;
    if let Some(pds) = settings.pds().map_err(exit::wrong)? {
        // Before anything else is asked for: whoever makes a key first would learn of the next mistake only then.
        pds.check_files().map_err(exit::wrong)?;
    }
    let data = config.data.clone();
    if !data.exists() {
        // A directory that is not there has no keys, and is not made for a server that does not start.
        planned.iter().try_for_each(|listener| listener.check_keys(false)).map_err(exit::wrong)?;
    }
    let refused = |keys| planned.iter().find_map(|listener| listener.check_keys(keys).err()).map(exit::wrong);
    let (refused_without_keys, certificates) = (refused(false), certificates(&planned));
    let local = local(&planned);
    let mut listeners = Vec::new();
    for listener in planned {
        if let Some(doubt) = listener.settings.doubt() {
            tracing::warn!(event = "proxies_wide", "{doubt}");
        }
        listeners.push(listener.bind().await?);
    }
    let node = open(config, &data).await?;
    let handle = node.handle();
    if let Some(told) = data::exposed(&data) {
        tracing::warn!(event = "data_exposed", "{told}");
    }
    if let Some(refused) = refused_without_keys
        && !keys_configured(&handle).await
    {
        stop(node).await?;
        return Err(refused);
    }
    // Before the first request: what a start owes to relays is durable when they come.
    let accounts = pds::open(settings, &data, local).await?;
    greet(&listeners, &data, &handle, settings.log_is_json()?)?;

    let (stop_now, stopped) = tokio::sync::oneshot::channel::<()>();
    let lanes = Lanes::start().context("cannot start the threads that serve connections")?;
    let mut server = Server::new(handle.clone(), options).over(lanes);
    if let Some(accounts) = &accounts {
        server = server.beside(accounts.mounted.clone());
    }
    let server = server.serve(listeners, async {
        // Either end of the channel going away means the same: stop.
        let _ended = stopped.await;
    });
    let server = tokio::spawn(server);
    if let Some(accounts) = &accounts {
        accounts.begin();
    }
    let failure = until_ended(&handle, &certificates).await?;
    supervisor::stopping();
    tracing::info!(event = "stopping", failure = failure.as_deref(), "waiting readers are answered, writes finish");
    let _receiver_gone = stop_now.send(());
    if let Some(accounts) = &accounts {
        accounts.part().await;
    }
    server.await??;
    let parted = match accounts {
        Some(accounts) => accounts.stop().await,
        None => Ok(()),
    };
    stop(node).await?;
    parted?;
    if let Some(failure) = failure {
        bail!("stopped because {failure}; start again to recover from the log");
    }
    tracing::info!(event = "stopped", "stopped cleanly");
    Ok(())
}

/// Opens a data directory, or makes it.
pub async fn open(config: Config, data: &Path) -> Result<Node> {
    let disk = Arc::new(OsDisk::private_in(data));
    let open = move || Node::open(config, disk, Arc::new(SystemClock::new()), Box::new(SystemRandom));
    tokio::task::spawn_blocking(open).await?.map_err(|error| data::refused(data, error))
}

/// Closes a data directory.
pub async fn stop(node: Node) -> Result<()> {
    tokio::task::spawn_blocking(move || node.shutdown()).await?.context("the log did not close cleanly")
}

/// Whether requests must carry a key. Where that is not known, because the group of keys does not serve, they are all
/// refused, so that nothing is open by mistake.
async fn keys_configured(handle: &Handle) -> bool {
    let mut view = handle.control_view();
    let known = tokio::time::timeout(KEYS_KNOWN_WITHIN, view.wait_for(Option::is_some)).await;
    match known {
        Ok(Ok(view)) => view.as_ref().is_none_or(|view| view.is_keyed()),
        Ok(Err(_)) | Err(_) => {
            tracing::error!(
                event = "keys_unknown",
                "the group of keys does not serve; every request is refused until it does"
            );
            true
        }
    }
}

/// How long work that nobody waits for may take when the server has ended.
const LEFTOVERS_WITHIN: std::time::Duration = std::time::Duration::from_secs(1);

/// How long a node that serves may take until it knows its keys.
const KEYS_KNOWN_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);

/// Says that the server is ready: to the log, to the terminal, and to the service manager.
fn greet(listeners: &[highwater_http::Listener], data: &Path, handle: &Handle, json: bool) -> Result<()> {
    let mut urls = Vec::new();
    for listener in listeners {
        let scheme = if listener.tls.is_some() { "https" } else { "http" };
        urls.push(format!("{scheme}://{}", listener.socket.local_addr()?));
    }
    let urls = urls.join(", ");
    let cluster = &handle.identity().cluster_id;
    tracing::info!(event = "ready", urls, data = %data.display(), cluster, version = env!("CARGO_PKG_VERSION"), "serving");
    if !json {
        eprintln!("highwater: serving {urls} from {} (ready: /readyz)", data.display());
    }
    supervisor::ready(&format!("serving {urls}"));
    Ok(())
}

/// Every certificate that is served.
fn certificates(planned: &[Planned]) -> Vec<Tls> {
    planned.iter().filter_map(|listener| listener.tls.clone()).collect()
}

/// Waits for a signal to end, or for the log to fail; says why it failed. SIGHUP reads the certificates again.
async fn until_ended(handle: &Handle, certificates: &[Tls]) -> Result<Option<String>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let watch = supervisor::watch(handle.clone());
    tokio::pin!(watch);
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(None),
            _ = interrupt.recv() => return Ok(None),
            failure = handle.failed() => return Ok(Some(failure)),
            () = &mut watch => {}
            _ = hang_up.recv() => {
                for tls in certificates {
                    let (tls, now) = (tls.clone(), handle.wall());
                    // Not waited for: reading may take as long as the file's disk likes, and other signals come meanwhile.
                    drop(tokio::task::spawn_blocking(move || tls.tell(&tls.reload_now(now))));
                }
            }
        }
    }
}
