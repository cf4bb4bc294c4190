//! `highwater serve`: the server, from its settings to its clean end.

use crate::arguments::ServeArguments;
use crate::config::Settings;
use anyhow::{Context as _, Result, bail};
use highwater_disk::{OsDisk, SystemClock, SystemRandom};
use highwater_http::HttpOptions;
use highwater_node::{Config, Handle, Node};
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Runs the server until a signal or a failure ends it.
pub fn run(arguments: &ServeArguments) -> Result<()> {
    let file = arguments.config.as_deref().map(Settings::load_file).transpose()?;
    let settings = Settings::resolve(&arguments.flags, |name| std::env::var(name).ok(), file.as_ref())?;
    if arguments.print_config {
        print!("{}", settings.print());
        return Ok(());
    }
    let filter = EnvFilter::try_new(settings.log()).with_context(|| format!("log = {:?}", settings.log()))?;
    let ansi = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(std::io::stderr).init();
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(serve(&settings))
}

async fn serve(settings: &Settings) -> Result<()> {
    let address = loopback(settings.listen()).await?;
    let mut config = Config::new(settings.data());
    config.groups = settings.groups()?;
    config.wal_bytes_max = settings.log_bytes_max()?;
    config.scrub_bytes_per_second = settings.scrub_bytes_per_second()?;
    config.compaction_bytes_per_second = settings.compaction_bytes_per_second()?;
    config.boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    let address = listener.local_addr()?;
    let data = config.data.clone();
    let open =
        move || Node::open(config, Arc::new(OsDisk::new()), Arc::new(SystemClock::new()), Box::new(SystemRandom));
    let node = tokio::task::spawn_blocking(open).await?.with_context(|| format!("cannot open {}", data.display()))?;

    let handle = node.handle();
    let options = HttpOptions::default();
    let router = highwater_http::router(handle.clone(), options.clone());
    tracing::info!(%address, data = %data.display(), cluster = handle.identity().cluster_id, "serving");
    eprintln!("highwater: serving http://{address} from {} (ready: /readyz)", data.display());

    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = highwater_http::serve(listener, router, options, async {
        // Either end of the channel going away means the same: stop.
        let _ended = stopped.await;
    });
    let server = tokio::spawn(server);
    let failure = until_ended(&handle).await?;
    let _receiver_gone = stop.send(());
    server.await??;
    tokio::task::spawn_blocking(move || node.shutdown()).await?.context("the log did not close cleanly")?;
    if let Some(failure) = failure {
        bail!("stopped because {failure}; start again to recover from the log");
    }
    tracing::info!("stopped cleanly");
    Ok(())
}

/// Resolves `host:port` and refuses what other machines could reach.
async fn loopback(listen: &str) -> Result<SocketAddr> {
    let mut addresses = tokio::net::lookup_host(listen).await.with_context(|| format!("listen = {listen:?}"))?;
    let address = addresses.next().with_context(|| format!("listen = {listen:?} names no address"))?;
    if !address.ip().is_loopback() {
        bail!(
            "listen = {listen:?} can be reached from other machines, and this server has neither keys nor TLS yet: it \
             would be open to everybody there. Listen on 127.0.0.1 or [::1]"
        );
    }
    Ok(address)
}

/// Waits for a signal, or for the log to fail; says why it failed.
async fn until_ended(handle: &Handle) -> Result<Option<String>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => Ok(None),
        _ = interrupt.recv() => Ok(None),
        failure = handle.failed() => Ok(Some(failure)),
    }
}
