//! `highwater check-config`: whether the server would start with its settings, as far as that can be told without
//! opening its data.

use crate::arguments::ServeArguments;
use crate::config::PdsSettings;
use crate::exit;
use crate::output;
use crate::serve::{self, Planned};
use anyhow::{Context as _, Result};
use highwater_base::Clock as _;
use highwater_disk::{OsDisk, SystemClock};
use highwater_http::Tls;
use highwater_node::ColdOptions;
use highwater_node::cold::probe;
use highwater_pds::names::Zone;
use serde::Serialize;
use std::path::Path;

/// What was found.
#[derive(Serialize)]
struct Found {
    data: String,
    data_exists: bool,
    /// What would keep a server from starting at this moment, or is worth another look.
    notes: Vec<String>,
    listeners: Vec<FoundListener>,
    /// Where the object store is, if one is set.
    object_store: Option<String>,
    /// The cluster that it belongs to; absent until a server used it.
    object_store_cluster: Option<String>,
    /// The accounts of the AT Protocol, if there are to be any.
    pds: Option<FoundPds>,
}

#[derive(Serialize)]
struct FoundPds {
    /// Absent if none is set and no listener is this machine's alone.
    zone: Option<String>,
    url: Option<String>,
    relays: Vec<String>,
}

#[derive(Serialize)]
struct FoundListener {
    address: String,
    tls: bool,
    streams: bool,
    admin: bool,
    xrpc: bool,
    keys_required: bool,
    proxies: Vec<String>,
    certificate: Option<FoundCertificate>,
}

#[derive(Serialize)]
struct FoundCertificate {
    file: String,
    /// Absent, like the times, if they cannot be read from it.
    state: Option<&'static str>,
    from_ms: Option<u64>,
    until_ms: Option<u64>,
    #[serde(skip)]
    until: Option<String>,
}

/// Checks the settings and prints what would be served.
pub fn run(arguments: &ServeArguments, json: bool) -> Result<()> {
    let settings = serve::settings(arguments)?;
    serve::log::filter(&settings).map_err(exit::wrong)?;
    settings.log_is_json().map_err(exit::wrong)?;
    settings.log_requests().map_err(exit::wrong)?;
    let config = serve::config(&settings).map_err(exit::wrong)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    let planned = runtime.block_on(serve::plan(&settings))?;
    let data_exists = config.data.exists();
    let mut notes: Vec<String> = planned.iter().filter_map(|listener| listener.settings.doubt()).collect();
    notes.extend(serve::data::exposed(&config.data));
    if serve::data::in_use(&config.data)? {
        let data = config.data.display();
        notes.push(format!(
            "{data} is in use: a server has it open, and another one does not start on it before that ends"
        ));
    }
    for listener in &planned {
        notes.extend(runtime.block_on(listener.probe())?);
    }
    let pds = settings.pds().map_err(exit::wrong)?;
    if let Some(pds) = &pds {
        pds.check_files().map_err(exit::wrong)?;
        notes.extend(pds.notes(&config.data));
    }
    let cluster = config.cold.as_ref().map(|cold| owner_of(cold, &config.data)).transpose()?.flatten();
    // The last of all: that there is no key yet is no mistake, and must not hide one.
    if !data_exists {
        planned.iter().try_for_each(|listener| listener.check_keys(false)).map_err(exit::wrong)?;
    }
    let found = Found {
        data: config.data.display().to_string(),
        data_exists,
        notes,
        listeners: planned.iter().map(found_listener).collect(),
        object_store: config.cold.as_ref().map(|cold| cold.store.0.place()),
        object_store_cluster: cluster,
        pds: pds.map(|pds| found_pds(&pds, &planned)),
    };
    warn(&found);
    if json { output::json(&found) } else { print(&found) }
}

/// The server starts with a certificate that its clients refuse, because they are all who would tell.
fn warn(found: &Found) {
    found.notes.iter().for_each(|note| eprintln!("highwater: {note}"));
    for FoundCertificate { file, state, until, .. } in found.listeners.iter().filter_map(|l| l.certificate.as_ref()) {
        let until = until.as_deref().unwrap_or_default();
        match *state {
            Some("expired") => {
                eprintln!("highwater: the certificate in {file} has expired ({until}): clients refuse it")
            }
            Some("not_yet") => eprintln!("highwater: the certificate in {file} is not in force yet: clients refuse it"),
            Some("ends_soon") => eprintln!("highwater: the certificate in {file} ends soon, at {until}: renew it"),
            _ => {}
        }
    }
}

fn found_certificate(tls: &Tls) -> FoundCertificate {
    let (validity, now) = (tls.validity(), SystemClock::new().wall());
    FoundCertificate {
        file: tls.certificate().display().to_string(),
        state: validity.map(|validity| validity.at(now).name()),
        from_ms: validity.map(|validity| validity.from.0),
        until_ms: validity.map(|validity| validity.until.0),
        until: validity.map(|validity| validity.end()),
    }
}

/// Asks the object store whose it is.
fn owner_of(cold: &ColdOptions, data: &Path) -> Result<Option<String>> {
    probe(cold, &OsDisk::new(), data).map_err(anyhow::Error::msg)
}

fn found_pds(pds: &PdsSettings, planned: &[Planned]) -> FoundPds {
    let zone = pds.zone_at(serve::local(planned));
    FoundPds {
        url: pds.url_public.clone().or_else(|| zone.as_ref().map(Zone::endpoint)),
        zone: zone.map(|zone| zone.to_string()),
        relays: pds.relays.clone(),
    }
}

fn found_listener(planned: &Planned) -> FoundListener {
    FoundListener {
        address: planned.address.to_string(),
        tls: planned.tls.is_some(),
        streams: planned.settings.services.streams,
        admin: planned.settings.services.admin,
        xrpc: planned.settings.services.xrpc,
        keys_required: !planned.is_open(),
        proxies: planned.settings.proxies.iter().map(ToString::to_string).collect(),
        certificate: planned.tls.as_ref().map(found_certificate),
    }
}

fn print(found: &Found) -> Result<()> {
    let there = if found.data_exists { "there" } else { "made at the first start" };
    let mut rows = vec![("data", format!("{} ({there})", found.data))];
    for listener in &found.listeners {
        let services = [("streams", listener.streams), ("admin", listener.admin), ("xrpc", listener.xrpc)];
        let services: Vec<_> = services.into_iter().filter(|(_, served)| *served).map(|(name, _)| name).collect();
        let scheme = if listener.tls { "https" } else { "http" };
        // The directory is not opened, so whether it holds keys is not known.
        let keys = match (listener.keys_required, found.data_exists) {
            (true, _) => "with keys only",
            (false, false) => "for this machine, open until the first key is made",
            (false, true) => "for this machine; with keys only if the directory holds any, which was not looked at",
        };
        rows.push(("listener", format!("{scheme}://{}  {}  {keys}", listener.address, services.join(", "))));
        if !listener.proxies.is_empty() {
            rows.push(("proxies", listener.proxies.join(", ")));
        }
        if let Some(FoundCertificate { file, until: Some(until), .. }) = &listener.certificate {
            rows.push(("certificate", format!("{file}, until {until}")));
        }
    }
    if let Some(FoundPds { zone, url, relays }) = &found.pds {
        let named = zone.as_deref().zip(url.as_deref()).map(|(zone, url)| format!("{zone}  reached at {url}"));
        rows.push(("zone", named.unwrap_or_else(|| "none: pds.zone is not set, so no accounts are served".to_owned())));
        if !relays.is_empty() {
            rows.push(("relays", relays.join(", ")));
        }
    }
    if let Some(place) = &found.object_store {
        let whose = found.object_store_cluster.as_deref().unwrap_or("no cluster yet");
        rows.push(("object store", format!("{place}  of {whose}")));
    }
    output::table(&rows)
}
