//! What the settings say of a listener.

use super::value_text;
use anyhow::{Context as _, Result, bail};
use highwater_http::{Network, Services};
use std::path::PathBuf;

/// A certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The file of certificates.
    pub certificate: PathBuf,
    /// The file of the key.
    pub key: PathBuf,
}

/// One listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerSettings {
    /// How messages name it.
    pub name: String,
    /// Where it listens, `host:port`.
    pub address: String,
    /// What it serves.
    pub services: Services,
    /// With TLS, or without.
    pub tls: Option<TlsFiles>,
    /// The proxies in front that speak TLS for it.
    pub proxies: Vec<Network>,
    /// Where clients reach it, without a slash at the end.
    pub url_public: Option<String>,
    /// Origins of pages that may use it in open mode.
    pub origins: Vec<String>,
}

impl ListenerSettings {
    /// The settings that describe the listener where the file has no tables.
    pub const KEYS: [&str; 5] = ["listen", "tls_certificate", "tls_key", "behind_proxy", "public_url"];

    /// Keys of a table, besides the settings of the same name.
    const TABLE_KEYS: [&str; 6] = ["address", "services", "tls_certificate", "tls_key", "behind_proxy", "public_url"];

    /// The one listener of the settings.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn simple<'a>(setting: impl Fn(&str) -> &'a str) -> Result<Self> {
        let address = setting("listen");
        Self::new(format!("listen = {address:?}"), address, Services::ALL, &setting)
    }

    /// The listener of the file's `number`th table.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn table(number: usize, table: &toml::Table, origins: &str) -> Result<Self> {
        let known = Self::TABLE_KEYS.join(", ");
        if let Some(unknown) = table.keys().find(|key| !Self::TABLE_KEYS.contains(&key.as_str())) {
            bail!("[[listener]] number {number} sets {unknown}, which it does not have; it has {known}");
        }
        let texts = table.iter().map(|(name, value)| Ok((name.as_str(), value_text(name, value)?)));
        let texts = texts.collect::<Result<std::collections::BTreeMap<_, _>>>()?;
        let setting = |name: &str| match name {
            "cors_origins" => origins,
            name => texts.get(name).map_or("", String::as_str),
        };
        let address = setting("address");
        if address.is_empty() {
            bail!("[[listener]] number {number} has no address; it has {known}");
        }
        let name = format!("[[listener]] number {number}, address = {address:?}");
        let services = match texts.get("services") {
            None => Services::ALL,
            Some(list) => services(list).with_context(|| name.clone())?,
        };
        Self::new(name, address, services, &setting)
    }

    /// What to tell whoever takes so many addresses for proxies that some of them hardly are.
    pub fn doubt(&self) -> Option<String> {
        let wide = self.proxies.iter().find(|network| network.is_wide())?;
        Some(format!(
            "{}: behind_proxy names {wide}, and every machine there may say which client asks, and send keys in the clear: \
             name the proxy's own address",
            self.name
        ))
    }

    fn new<'a>(name: String, address: &str, services: Services, setting: &impl Fn(&str) -> &'a str) -> Result<Self> {
        let tls = match (setting("tls_certificate"), setting("tls_key")) {
            ("", "") => None,
            ("", _) => bail!("{name}: there is a tls_key and no tls_certificate; TLS takes both"),
            (_, "") => bail!("{name}: there is a tls_certificate and no tls_key; TLS takes both"),
            (certificate, key) => Some(TlsFiles { certificate: certificate.into(), key: key.into() }),
        };
        let proxies = list(setting("behind_proxy")).map(str::parse).collect::<Result<Vec<Network>, _>>();
        let proxies = proxies.with_context(|| format!("{name}: behind_proxy"))?;
        if let Some(everybody) = proxies.iter().find(|network| network.is_everything()) {
            bail!(
                "{name}: behind_proxy names everybody ({everybody}): keys would cross the network in the clear, and anybody \
                 could say which client asks. Name the proxy's own address"
            );
        }
        let url_public = Some(setting("public_url")).filter(|url| !url.is_empty());
        let url_public = url_public.map(public_url).transpose().with_context(|| name.clone())?;
        let origins = list(setting("cors_origins")).map(origin).collect::<Result<_>>()?;
        Ok(Self { name, address: address.to_owned(), services, tls, proxies, url_public, origins })
    }
}

/// The parts of a list with commas.
fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

fn services(text: &str) -> Result<Services> {
    let mut services = Services::NONE;
    for name in list(text) {
        match name {
            "streams" => services.streams = true,
            "admin" => services.admin = true,
            "xrpc" => services.xrpc = true,
            other => bail!("there is no service {other:?}; there are streams, admin and xrpc"),
        }
    }
    if services == Services::NONE {
        bail!("services is empty; there are streams, admin and xrpc");
    }
    Ok(services)
}

/// What `Location` is put below, without the slash that a path begins with.
fn public_url(text: &str) -> Result<String> {
    let url = text.trim_end_matches('/');
    let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")).unwrap_or_default();
    if host.is_empty() || host.starts_with('/') || host.contains(['?', '#', '@', ' ']) {
        bail!("public_url = {text:?} is not a URL such as https://streams.example.com");
    }
    Ok(url.to_owned())
}

/// An origin as browsers send it, which is compared byte by byte.
fn origin(text: &str) -> Result<String> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or_default();
    if host.is_empty() || host.contains(['/', '*', '?', '#', '@', ' ']) {
        bail!(
            "cors_origins names {text:?}, which is not an origin such as https://app.example.com: a scheme, a host, and a \
             port if it has one, without a path or an asterisk"
        );
    }
    Ok(text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn listeners(file: &str) -> Result<Vec<ListenerSettings>> {
        Settings::resolve(&Default::default(), |_| None, Some(&file.parse()?))?.listeners()
    }

    #[track_caller]
    fn refused(file: &str, words: &[&str]) {
        let error = format!("{:#}", listeners(file).expect_err(file));
        assert!(words.iter().all(|word| error.contains(word)), "{file}: {error}");
    }

    #[test]
    fn the_simple_form_is_one_listener_with_everything() {
        let one = listeners("").unwrap().remove(0);
        assert_eq!((one.address.as_str(), one.services, one.tls), ("127.0.0.1:4437", Services::ALL, None));
        let file = "listen = \"[::]:443\"\ntls_certificate = \"c.pem\"\ntls_key = \"k.pem\"\n\
                    public_url = \"https://s.example.com/\"\nbehind_proxy = [\"10.0.0.7\", \"fd00::/8\"]\n\
                    cors_origins = \"https://App.example.com, http://b.test:8080\"";
        let one = listeners(file).unwrap().remove(0);
        assert_eq!(one.tls.unwrap().key, PathBuf::from("k.pem"));
        assert_eq!(one.url_public.as_deref(), Some("https://s.example.com"));
        assert_eq!(one.proxies.len(), 2);
        assert_eq!(one.origins, ["https://app.example.com", "http://b.test:8080"]);
    }

    #[test]
    fn each_table_is_a_listener_of_its_own() {
        let all = listeners(
            "[[listener]]\naddress = \"0.0.0.0:443\"\nservices = [\"streams\"]\ntls_certificate = \"c\"\n\
             tls_key = \"k\"\n[[listener]]\naddress = \"127.0.0.1:4437\"\n",
        );
        let all = all.unwrap();
        assert_eq!(all[0].services, Services { streams: true, ..Services::NONE });
        assert_eq!((all[1].services, all[1].tls.is_none()), (Services::ALL, true));
    }

    #[test]
    fn what_is_wrong_with_a_listener_is_said_with_its_name() {
        refused("tls_key = \"k\"", &["no tls_certificate"]);
        refused("tls_certificate = \"k\"", &["no tls_key"]);
        refused("behind_proxy = \"proxy.example.com\"", &["behind_proxy", "proxy.example.com", "10.0.0.0/8"]);
        refused("behind_proxy = \"0.0.0.0/0\"", &["behind_proxy", "everybody", "own address"]);
        refused("behind_proxy = [\"10.0.0.1\", \"::/0\"]", &["behind_proxy", "::/0"]);
        refused("public_url = \"streams.example.com\"", &["public_url", "https://"]);
        refused("cors_origins = \"*\"", &["cors_origins", "asterisk"]);
        refused("cors_origins = \"https://a.example.com/path\"", &["without a path"]);
        refused("[[listener]]\nservices = [\"admin\"]", &["number 1", "no address"]);
        refused("[[listener]]\naddress = \"a:1\"\nadress = \"b\"", &["adress", "behind_proxy"]);
        refused("[[listener]]\naddress = \"a:1\"\nservices = [\"console\"]", &["console", "streams, admin and xrpc"]);
        refused("[[listener]]\naddress = \"a:1\"\nservices = []", &["services is empty"]);
        refused(
            "listen = \"127.0.0.1:1\"\n[[listener]]\naddress = \"a:1\"",
            &["listen is set by the file", "[[listener]]"],
        );
    }
}
