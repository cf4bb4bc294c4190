//! Who could reach a listener, and what must be there before it is served.

use crate::config::ListenerSettings;
use crate::exit::{self, Status};
use anyhow::{Context as _, Result, bail};
use highwater_http::{Front, Listener, Tls};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// A listener whose settings were judged.
pub struct Planned {
    /// What the settings say.
    pub settings: ListenerSettings,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its certificate.
    pub tls: Option<Tls>,
    /// Whether the server has accounts of the AT Protocol that others are meant to reach.
    accounts_public: bool,
}

impl Planned {
    /// Resolves a listener's address and loads its certificate.
    ///
    /// # Errors
    /// If the address names nothing, the certificate cannot be used, or keys would cross the network in the clear.
    pub async fn new(settings: ListenerSettings, accounts_public: bool) -> Result<Self> {
        let name = &settings.name;
        let address = resolve(&settings.address).await.with_context(|| {
            format!("{name}: an address is a host or an address and a port, such as 127.0.0.1:4437 or 0.0.0.0:443")
        })?;
        let load = |files: &crate::config::TlsFiles| Tls::load(&files.certificate, &files.key);
        let tls = settings.tls.as_ref().map(load).transpose().with_context(|| name.clone())?;
        let planned = Self { settings, address, tls, accounts_public };
        if !planned.is_local() && planned.tls.is_none() && planned.settings.proxies.is_empty() {
            return Err(exit::with(
                Status::Wrong,
                format!(
                    "{} can be reached from other machines, and has neither TLS nor a proxy that has it: keys would cross the \
                 network in the clear. Set tls_certificate and tls_key, or set behind_proxy to the address of a proxy that \
                 speaks TLS; the server then also needs a key, which {HOW_KEY} makes. {ALONE}",
                    planned.settings.name
                ),
            ));
        }
        Ok(planned)
    }

    /// Whether only this machine reaches it.
    pub fn is_local(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }

    /// Whether it answers without a key for as long as there are no keys: what only this machine reaches, and nobody
    /// passes on.
    pub fn is_open(&self) -> bool {
        self.is_direct() && !self.accounts_public
    }

    /// Whether only this machine reaches it, and nobody passes it on.
    pub fn is_direct(&self) -> bool {
        self.is_local() && self.settings.proxies.is_empty() && self.settings.url_public.is_none()
    }

    /// Refuses a listener that others reach while there are no keys.
    ///
    /// # Errors
    /// What to do about it.
    pub fn check_keys(&self, keys_configured: bool) -> Result<()> {
        if keys_configured || self.is_open() {
            return Ok(());
        }
        let name = &self.settings.name;
        if self.is_direct() {
            bail!(
                "pds.zone or pds.public_url is set, and there are no keys: accounts that others reach are not managed by \
                 whoever is on this machine ({name}). Make a key with {HOW_KEY}, and start again. To try accounts out on \
                 this machine alone, leave out pds.zone and pds.public_url"
            );
        }
        if self.is_local() {
            bail!(
                "{name} is passed on to others (behind_proxy or public_url is set), and there are no keys: it would be \
                 open to everybody there. Make one with {HOW_KEY}, and start again. To serve this machine alone, leave out \
                 behind_proxy and public_url"
            );
        }
        bail!(
            "{name} can be reached from other machines, and there are no keys: it would be open to everybody there. Make \
             one with {HOW_KEY}, and start again. {ALONE}"
        )
    }

    /// Whether `other` takes the same port of the same address, so that one of them could not be opened.
    pub fn collides(&self, other: &Self) -> bool {
        let (a, b) = (self.address, other.address);
        let all = |one: SocketAddr, other: SocketAddr| {
            one.ip().is_unspecified() && (one.is_ipv6() || one.is_ipv4() == other.is_ipv4())
        };
        a.port() == b.port() && a.port() != 0 && (a.ip() == b.ip() || all(a, b) || all(b, a))
    }

    /// Opens its socket.
    ///
    /// # Errors
    /// If the address is taken or not this machine's.
    pub async fn bind(self) -> Result<Listener> {
        let open = self.is_open();
        let socket = TcpListener::bind(self.address).await;
        let socket = socket.map_err(|error| self.unopened(&error))?;
        let ListenerSettings { services, proxies, url_public, origins, .. } = self.settings;
        Ok(Listener { socket, tls: self.tls, front: Front { open, services, url_public, proxies, origins } })
    }
}

impl Planned {
    /// Whether its socket could be opened; if another program listens there, or this user may not, what to tell of it.
    ///
    /// # Errors
    /// If the address is not this machine's.
    pub async fn probe(&self) -> Result<Option<String>> {
        match TcpListener::bind(self.address).await {
            Ok(_) => Ok(None),
            Err(error) if matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied) => {
                Ok(Some(self.unopened(&error).to_string()))
            }
            Err(error) => Err(self.unopened(&error)),
        }
    }

    /// Why its socket was not opened, and what to do.
    fn unopened(&self, error: &io::Error) -> anyhow::Error {
        let (status, advice) = match error.kind() {
            ErrorKind::AddrInUse => (
                Status::Later,
                ": another program listens there, perhaps another server; stop that one, or choose another port",
            ),
            ErrorKind::AddrNotAvailable => (Status::Wrong, ": it is no address of this machine"),
            ErrorKind::PermissionDenied => {
                (Status::Failed, ": ports below 1024 are root's, and theirs who have CAP_NET_BIND_SERVICE")
            }
            _ => (Status::Failed, ""),
        };
        exit::with(status, format!("cannot listen on {} ({}): {error}{advice}", self.address, self.settings.name))
    }
}

async fn resolve(host_and_port: &str) -> Result<SocketAddr> {
    tokio::net::lookup_host(host_and_port).await?.next().context("it names no address")
}

/// How the first key is made where no server runs yet.
const HOW_KEY: &str = "`highwater key create --data DIR --scopes admin` (DIR is the server's data directory)";

/// What to do if nobody else was meant.
const ALONE: &str = "To serve this machine alone, listen on 127.0.0.1 or [::1]";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    /// What becomes of a file's first listener: open, keyed, or refused with these words.
    async fn judge(file: &str, keys: bool) -> Result<bool> {
        let settings = Settings::resolve(&Default::default(), |_| None, Some(&file.parse()?))?;
        let accounts_public = settings.pds()?.is_some_and(|pds| pds.is_public());
        let planned = Planned::new(settings.listeners()?.remove(0), accounts_public).await?;
        planned.check_keys(keys)?;
        Ok(planned.is_open())
    }

    #[tokio::test]
    async fn nothing_that_others_reach_is_served_without_keys_and_tls() {
        const PROXY: &str = "behind_proxy = \"10.0.0.1\"\n";
        const URL: &str = "public_url = \"https://s.example.com\"\n";
        for local in ["127.0.0.1:0", "[::1]:0", "localhost:0", "[::ffff:127.0.0.1]:0"] {
            let listen = format!("listen = \"{local}\"\n");
            assert!(judge(&listen, false).await.unwrap(), "{local} alone is open");
            for passed_on in [PROXY, URL] {
                let file = format!("{listen}{passed_on}");
                let error = judge(&file, false).await.expect_err(&file).to_string();
                assert!(error.contains("leave out behind_proxy and public_url"), "it listens on loopback: {error}");
                assert!(error.contains("no keys") && error.contains("highwater key create"), "{error}");
                assert!(!judge(&file, true).await.unwrap(), "{file} takes keys");
            }
        }
        for public in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
            let listen = format!("listen = \"{public}\"\n");
            for (rest, keys, words) in [
                ("", false, "neither TLS nor a proxy"),
                ("", true, "neither TLS nor a proxy"),
                (URL, true, "neither TLS nor a proxy"),
                (PROXY, false, "no keys"),
            ] {
                let error = judge(&format!("{listen}{rest}"), keys).await.expect_err(public).to_string();
                assert!(error.contains(words) && error.contains("127.0.0.1"), "{public} {rest}: {error}");
            }
            assert!(!judge(&format!("{listen}{PROXY}"), true).await.unwrap(), "{public} takes keys");
        }
    }

    /// Accounts under a zone are reached by everybody, also where a proxy that nobody stated lets them in.
    #[tokio::test]
    async fn a_zone_ends_open_mode_and_localhost_does_not() {
        const LISTEN: &str = "listen = \"127.0.0.1:0\"\n[pds]\n";
        for public in ["zone = \"pds.example.com\"", "public_url = \"https://pds.example.com\""] {
            let error = judge(&format!("{LISTEN}{public}"), false).await.expect_err(public).to_string();
            assert!(error.contains("pds.zone") && error.contains("highwater key create"), "{error}");
            assert!(!judge(&format!("{LISTEN}{public}"), true).await.unwrap(), "{public} takes keys");
            assert!(judge(&format!("{LISTEN}{public}\nenabled = false"), false).await.unwrap(), "no accounts");
        }
        assert!(judge(&format!("{LISTEN}zone = \"localhost:4437\""), false).await.unwrap());
    }

    #[tokio::test]
    async fn two_listeners_of_one_address_collide() {
        let planned = async |address: &str| {
            let file = format!("listen = \"{address}\"\nbehind_proxy = \"10.0.0.1\"");
            let settings = Settings::resolve(&Default::default(), |_| None, Some(&file.parse().unwrap())).unwrap();
            Planned::new(settings.listeners().unwrap().remove(0), false).await.unwrap()
        };
        for (a, b, collide) in [
            ("127.0.0.1:9", "127.0.0.1:9", true),
            ("127.0.0.1:9", "127.0.0.1:10", false),
            ("127.0.0.1:9", "127.0.0.2:9", false),
            ("0.0.0.0:9", "127.0.0.1:9", true),
            ("127.0.0.1:9", "[::]:9", true),
            ("0.0.0.0:9", "[::1]:9", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
        ] {
            assert_eq!(planned(a).await.collides(&planned(b).await), collide, "{a} {b}");
        }
        let elsewhere = planned("203.0.113.9:9").await.probe().await.unwrap_err().to_string();
        assert!(elsewhere.contains("no address of this machine"), "{elsewhere}");
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let told = planned(&taken.local_addr().unwrap().to_string()).await.probe().await.unwrap().unwrap();
        assert!(told.contains("another program"), "{told}");
    }
}
