//! Who could reach a listener, and what must be there before it is served.

use crate::config::ListenerSettings;
use anyhow::{Context as _, Result, bail};
use highwater_http::{Front, Listener, Tls};
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
}

impl Planned {
    /// Resolves a listener's address and loads its certificate.
    ///
    /// # Errors
    /// If the address names nothing, the certificate cannot be used, or keys would cross the network in the clear.
    pub async fn new(settings: ListenerSettings) -> Result<Self> {
        let name = &settings.name;
        let address = resolve(&settings.address).await.with_context(|| name.clone())?;
        let load = |files: &crate::config::TlsFiles| Tls::load(&files.certificate, &files.key);
        let tls = settings.tls.as_ref().map(load).transpose().with_context(|| name.clone())?;
        let planned = Self { settings, address, tls };
        if !planned.is_local() && planned.tls.is_none() && planned.settings.proxies.is_empty() {
            bail!(
                "{} can be reached from other machines, and has neither TLS nor a proxy that has it: keys would cross the \
                 network in the clear. {HOW}",
                planned.settings.name
            );
        }
        Ok(planned)
    }

    /// Whether only this machine reaches it.
    fn is_local(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }

    /// Whether it answers without a key for as long as there are no keys: what only this machine reaches, and nobody
    /// passes on.
    pub fn is_open(&self) -> bool {
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
        if self.is_local() {
            bail!(
                "{name} is passed on to others (behind_proxy or public_url is set), and there are no keys: it would be \
                 open to everybody there. {HOW}"
            );
        }
        bail!(
            "{name} can be reached from other machines, and there are no keys: it would be open to everybody there. {HOW}"
        )
    }

    /// Opens its socket.
    ///
    /// # Errors
    /// If the address is taken or not this machine's.
    pub async fn bind(self) -> Result<Listener> {
        let open = self.is_open();
        let socket = TcpListener::bind(self.address).await;
        let socket = socket.with_context(|| format!("cannot listen on {}", self.address))?;
        let ListenerSettings { services, proxies, url_public, origins, .. } = self.settings;
        Ok(Listener { socket, tls: self.tls, front: Front { open, services, url_public, proxies, origins } })
    }
}

async fn resolve(host_and_port: &str) -> Result<SocketAddr> {
    tokio::net::lookup_host(host_and_port).await?.next().context("it names no address")
}

/// What to do about a listener that is refused.
const HOW: &str = "To serve other machines: (1) start on 127.0.0.1 and make a key with `highwater key create`; (2) set \
                   tls_certificate and tls_key, or set behind_proxy to the address of a proxy that speaks TLS. To serve \
                   this machine alone, listen on 127.0.0.1 or [::1]";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    /// What becomes of a file's first listener: open, keyed, or refused with these words.
    async fn judge(file: &str, keys: bool) -> Result<bool> {
        let settings = Settings::resolve(&Default::default(), |_| None, Some(&file.parse()?))?;
        let planned = Planned::new(settings.listeners()?.remove(0)).await?;
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
}
