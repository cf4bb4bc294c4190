//! What the settings say of the accounts of the AT Protocol.

use super::{Key, Settings};
use anyhow::{Context as _, Result, bail};
use highwater_pds::names::Zone;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The settings of the table `[pds]`.
pub const KEYS: [Key; 19] = [
    Key { name: "pds.enabled", default: "true", help: "Whether accounts of the AT Protocol are served: true or false" },
    Key {
        name: "pds.zone",
        default: "",
        help: "Zone below which accounts get their names, such as pds.example.com, with one wildcard DNS record and one wildcard certificate; without it localhost and the listener's port, which serves this machine alone. Zone and port are fixed with the first account",
    },
    Key {
        name: "pds.public_url",
        default: "",
        help: "Where others reach the accounts' server; https:// and the zone without it",
    },
    Key {
        name: "pds.contact",
        default: "",
        help: "Mail address of whoever runs the server, which describeServer tells everybody",
    },
    Key {
        name: "pds.admin_password_file",
        default: "",
        help: "File with the password of com.atproto.admin methods, whose user is admin; without it nobody may call them",
    },
    Key {
        name: "pds.announce",
        default: "on-activation",
        help: "When relays hear of a new account: on-activation, or on-first-write",
    },
    Key {
        name: "pds.events_hours",
        default: "72",
        help: "Hours for which events are kept for consumers that were away",
    },
    Key {
        name: "pds.events_bytes_max",
        default: "17179869184",
        help: "Bytes of events that are kept at the most; those of a restore stay for the hours all the same",
    },
    Key { name: "pds.blob_bytes_max", default: "52428800", help: "Bytes of one blob at the most" },
    Key {
        name: "pds.encryption_file",
        default: "",
        help: "File, outside the volume, with the key under which signing keys and secrets are stored; a data directory is bound to it when it is made",
    },
    Key {
        name: "pds.witness_path",
        default: "",
        help: "File, outside the volume, that remembers the newest start and the highest numbers and revisions given out, so that a volume that went back is noticed, and a restore goes on above all of them",
    },
    Key {
        name: "pds.relays",
        default: "",
        help: "Relays that are asked to read this server, with commas between them, such as https://bsky.network",
    },
    Key {
        name: "pds.check_on_boot",
        default: "false",
        help: "Whether each start asks the relays, in the background, if they still read this server, and asks them to if not: true or false",
    },
    Key {
        name: "pds.account_limit",
        default: "100",
        help: "Accounts that relays take from one host before they drop the others' commits; beyond it the log warns",
    },
    Key { name: "pds.rate_limits", default: "true", help: "Whether the four limits below hold: true or false" },
    Key {
        name: "pds.requests_per_5_min",
        default: "3000",
        help: "Requests of one address, or one IPv6 network of 64 bits, in five minutes",
    },
    Key {
        name: "pds.points_per_hour",
        default: "5000",
        help: "Points of writes of one account in an hour: a create costs 3, an update 2, a delete 1",
    },
    Key { name: "pds.points_per_day", default: "35000", help: "Points of writes of one account in a day" },
    Key {
        name: "pds.sessions_per_5_min",
        default: "30",
        help: "Attempts of one address to log in under one name in five minutes",
    },
];

/// Bytes of events below which a server could not keep what one restore sends.
const EVENTS_BYTES_MIN: u64 = 64 << 20;

/// Bytes of a blob between which the limit lies: a picture of a phone, and the largest that memory and time are bounded for.
const BLOB_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 30;

/// The accounts' settings, judged.
#[derive(Debug, Clone)]
pub struct PdsSettings {
    /// The zone, if one is set.
    pub zone: Option<Zone>,
    /// Where others reach it, if that is set, without a slash at the end.
    pub url_public: Option<String>,
    /// Whom to write to.
    pub contact: Option<String>,
    /// The file of the administrator's password.
    pub admin_password_file: Option<PathBuf>,
    /// Whether relays hear of an account with its first write only.
    pub on_first_write: bool,
    /// Seconds for which events are kept.
    pub events_seconds: u64,
    /// Bytes of events at the most.
    pub events_bytes_max: u64,
    /// Bytes of a blob at the most.
    pub blob_bytes_max: u64,
    /// The file of the key under which secrets are stored.
    pub encryption_file: Option<PathBuf>,
    /// The file that remembers the newest start.
    pub witness_path: Option<PathBuf>,
    /// The relays' URLs, without a slash at the end.
    pub relays: Vec<String>,
    /// Whether each start asks them.
    pub check_on_boot: bool,
    /// Accounts that relays take.
    pub account_limit: u64,
    /// Requests in five minutes, points in an hour and in a day, sessions in five minutes, if they are limited.
    pub rates: Option<[u64; 4]>,
}

impl PdsSettings {
    /// The zone in use: the one that is set, or this machine's name with the port of a listener that this machine alone
    /// reaches. None without either: nobody could find the accounts.
    #[must_use]
    pub fn zone_at(&self, local: Option<SocketAddr>) -> Option<Zone> {
        self.zone.clone().or_else(|| format!("localhost:{}", local?.port()).parse().ok())
    }

    /// Whether others than this machine are meant to reach the accounts.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.url_public.is_some() || self.zone.as_ref().is_some_and(|zone| zone.host() != "localhost")
    }

    /// Reads the files that a start would read.
    ///
    /// # Errors
    /// One that is not there, or may not be read, or is empty.
    pub fn check_files(&self) -> Result<()> {
        let read =
            [("pds.admin_password_file", &self.admin_password_file), ("pds.encryption_file", &self.encryption_file)];
        for (name, path) in read {
            let Some(path) = path else { continue };
            let bytes = std::fs::read(path).with_context(|| format!("{name} = {} cannot be read", path.display()))?;
            if bytes.trim_ascii().is_empty() {
                bail!("{name} = {} is empty", path.display());
            }
        }
        if let Some(path) = &self.encryption_file {
            crate::serve::pds::sealer(path)?;
        }
        let folder = |path: &Path| path.parent().filter(|parent| !parent.as_os_str().is_empty()).map(Path::to_path_buf);
        if let Some(path) = &self.witness_path
            && let Some(folder) = folder(path)
            && !folder.is_dir()
        {
            bail!("pds.witness_path = {} lies in a folder that is not there", path.display());
        }
        Ok(())
    }

    /// What is worth another look.
    #[must_use]
    pub fn notes(&self, data: &Path) -> Vec<String> {
        let mut notes = Vec::new();
        if self.check_on_boot && self.relays.is_empty() {
            notes.push("pds.check_on_boot is true, and pds.relays names nobody to ask".to_owned());
        }
        let outside = [("pds.encryption_file", &self.encryption_file), ("pds.witness_path", &self.witness_path)];
        for (name, path) in outside {
            let inside = path.as_ref().filter(|path| is_inside(path, data));
            notes.extend(inside.map(|path| {
                let (path, data) = (path.display(), data.display());
                format!("{name} = {path} lies in the data directory {data}, and is copied and restored with it: keep it elsewhere")
            }));
        }
        let endpoint = self.zone.as_ref().map(Zone::endpoint);
        if let (Some(url), Some(endpoint)) = (&self.url_public, endpoint)
            && *url != endpoint
        {
            notes.push(format!(
                "pds.public_url is {url}, and the zone's own address is {endpoint}: DID documents name the former"
            ));
        }
        notes
    }
}

/// Whether a file lies below a directory; what is not there yet is judged by what is above it.
fn is_inside(path: &Path, directory: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    real(parent).zip(real(directory)).is_some_and(|(parent, directory)| parent.starts_with(directory))
}

impl Settings {
    /// The accounts' settings; none if there are to be no accounts.
    ///
    /// # Errors
    /// What is wrong with which of them.
    pub fn pds(&self) -> Result<Option<PdsSettings>> {
        let zone = Some(self.text("pds.zone")).filter(|text| !text.is_empty());
        let path = |name: &str| Some(self.text(name)).filter(|text| !text.is_empty()).map(PathBuf::from);
        let settings = PdsSettings {
            zone: zone.map(|text| text.parse::<Zone>().context("pds.zone")).transpose()?,
            url_public: self.pds_url("pds.public_url")?,
            contact: match self.text("pds.contact") {
                "" => None,
                text if is_mail(text) => Some(text.to_owned()),
                text => bail!("pds.contact = {text:?} is no mail address such as admin@example.com"),
            },
            admin_password_file: path("pds.admin_password_file"),
            on_first_write: match self.text("pds.announce") {
                "on-activation" => false,
                "on-first-write" => true,
                other => bail!("pds.announce = {other:?} is neither on-activation nor on-first-write"),
            },
            events_seconds: match self.number("pds.events_hours")? {
                hours @ 1..=8_760 => hours * 3_600,
                hours => bail!("pds.events_hours = {hours} is not between 1 and 8760, which is a year"),
            },
            events_bytes_max: match self.number("pds.events_bytes_max")? {
                bytes if bytes >= EVENTS_BYTES_MIN => bytes,
                bytes => bail!("pds.events_bytes_max = {bytes} is below {EVENTS_BYTES_MIN} (64 MiB)"),
            },
            blob_bytes_max: match self.number("pds.blob_bytes_max")? {
                bytes if BLOB_BYTES.contains(&bytes) => bytes,
                bytes => {
                    bail!("pds.blob_bytes_max = {bytes} is not between {} (1 MiB) and {} (1 GiB)", 1 << 20, 1 << 30)
                }
            },
            encryption_file: path("pds.encryption_file"),
            witness_path: path("pds.witness_path"),
            relays: self.pds_relays()?,
            check_on_boot: self.truth("pds.check_on_boot")?,
            account_limit: match self.number("pds.account_limit")? {
                0 => bail!(
                    "pds.account_limit = 0: relays take at least one account of a host; it is 100 unless one says otherwise"
                ),
                limit => limit,
            },
            rates: if self.truth("pds.rate_limits")? {
                const RATES: [&str; 4] =
                    ["pds.requests_per_5_min", "pds.points_per_hour", "pds.points_per_day", "pds.sessions_per_5_min"];
                let mut rates = [0; 4];
                for (rate, name) in rates.iter_mut().zip(RATES) {
                    *rate = self.number(name)?;
                    if *rate == 0 {
                        bail!("{name} = 0 would refuse everybody; pds.rate_limits = false sets no limits");
                    }
                }
                Some(rates)
            } else {
                None
            },
        };
        let local = settings.zone.as_ref().is_none_or(|zone| zone.host() == "localhost");
        if let Some(url) = settings.url_public.as_ref().filter(|url| url.starts_with("http://") && !local) {
            bail!("pds.public_url = {url:?}: the AT Protocol takes https:// alone, but for a zone of localhost");
        }
        Ok(self.truth("pds.enabled")?.then_some(settings))
    }

    fn truth(&self, name: &str) -> Result<bool> {
        let text = self.text(name);
        text.parse().ok().with_context(|| format!("{name} = {text:?} is neither true nor false"))
    }

    fn pds_url(&self, name: &str) -> Result<Option<String>> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        origin(text).map(Some).with_context(|| format!("{name} = {text:?} is no URL such as https://pds.example.com"))
    }

    fn pds_relays(&self) -> Result<Vec<String>> {
        let texts = self.text("pds.relays").split(',').map(str::trim).filter(|text| !text.is_empty());
        let url = |text: &str| {
            let relay = origin(text);
            relay.with_context(|| format!("pds.relays: {text:?} is no URL of a relay such as https://bsky.network"))
        };
        texts.map(url).collect()
    }
}

/// Whether a text can be a mail address: what stands before the last @ is its host's business.
fn is_mail(text: &str) -> bool {
    let spaced = text.contains(|c: char| c.is_whitespace() || c.is_control());
    text.rsplit_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty() && !spaced)
}

/// A URL of a scheme, a host and perhaps a port, without the slash at its end.
fn origin(text: &str) -> Option<String> {
    let url = text.trim_end_matches('/');
    let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    let sound = !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']);
    sound.then(|| url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_disk::{OsDisk, SystemRandom};
    use highwater_host::seal::KeyFile;

    fn pds(file: &str) -> Result<Option<PdsSettings>> {
        Settings::resolve(&Default::default(), |_| None, Some(&file.parse()?))?.pds()
    }

    #[track_caller]
    fn refused(file: &str, words: &[&str]) {
        let error = format!("{:#}", pds(file).expect_err(file));
        assert!(words.iter().all(|word| error.contains(word)), "{file}: {error}");
    }

    #[test]
    fn without_settings_accounts_are_this_machines_at_the_listeners_port() {
        let settings = pds("").unwrap().unwrap();
        assert!(!settings.is_public() && settings.relays.is_empty() && !settings.check_on_boot);
        assert_eq!((settings.events_seconds, settings.rates), (72 * 3_600, Some([3_000, 5_000, 35_000, 30])));
        let zone = |address: &str| settings.zone_at(Some(address.parse().unwrap())).unwrap().to_string();
        assert_eq!(zone("127.0.0.1:4437"), "localhost:4437");
        assert!(settings.zone_at(None).is_none(), "others could not find the accounts");
        assert!(pds("[pds]\nenabled = false").unwrap().is_none());
    }

    #[test]
    fn a_zone_makes_accounts_others_business() {
        let file = "[pds]\nzone = \"pds.example.com\"\nrelays = [\"https://bsky.network/\", \"http://localhost:7\"]\n\
                    announce = \"on-first-write\"\nrate_limits = false\ncheck_on_boot = true";
        let settings = pds(file).unwrap().unwrap();
        assert!(settings.is_public() && settings.on_first_write && settings.check_on_boot);
        assert_eq!(settings.relays, ["https://bsky.network", "http://localhost:7"]);
        assert_eq!(settings.zone_at(None).unwrap().endpoint(), "https://pds.example.com");
        assert_eq!(settings.rates, None);
        assert!(!pds("[pds]\nzone = \"localhost:4437\"").unwrap().unwrap().is_public());
    }

    #[test]
    fn what_is_wrong_with_a_setting_is_said_with_its_name() {
        for zone in
            ["pds", "pds.example.com:443", "https://pds.example.com", "127.0.0.1", "pds_.example.com", "localhost"]
        {
            refused(&format!("[pds]\nzone = {zone:?}"), &["pds.zone", zone, "two labels"]);
        }
        refused("[pds]\npublic_url = \"pds.example.com\"", &["pds.public_url", "https://"]);
        refused(
            "[pds]\nzone = \"a.example\"\npublic_url = \"http://a.example\"",
            &["pds.public_url", "https:// alone"],
        );
        refused("[pds]\nrelays = \"bsky.network\"", &["pds.relays", "https://bsky.network"]);
        refused("[pds]\nrelays = \"https://a.example/xrpc\"", &["pds.relays"]);
        refused("[pds]\nannounce = \"never\"", &["pds.announce", "on-first-write"]);
        refused("[pds]\nevents_hours = 0", &["pds.events_hours"]);
        refused("[pds]\nevents_bytes_max = 1", &["pds.events_bytes_max", "64 MiB"]);
        refused("[pds]\nblob_bytes_max = 2000000000", &["pds.blob_bytes_max", "1 GiB"]);
        refused("[pds]\naccount_limit = -1", &["pds.account_limit", "whole number"]);
        refused("[pds]\naccount_limit = 0", &["pds.account_limit", "at least one"]);
        for contact in ["hello", "@example.com", "a@", "a b@example.com"] {
            refused(&format!("[pds]\ncontact = {contact:?}"), &["pds.contact", "mail address"]);
        }
        for rate in ["requests_per_5_min", "points_per_hour", "points_per_day", "sessions_per_5_min"] {
            refused(&format!("[pds]\n{rate} = 0"), &[rate, "pds.rate_limits = false"]);
            assert!(pds(&format!("[pds]\nrate_limits = false\n{rate} = 0")).is_ok(), "{rate} does not hold");
        }
        refused("[pds]\nenabled = \"yes\"", &["pds.enabled", "neither true nor false"]);
        refused("[pds]\nzones = \"a.b\"", &["pds.zones", "pds.zone"]);
        refused("pds = 1", &["[pds]"]);
    }

    #[test]
    fn files_that_a_start_would_read_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let check = |name: &str, path: &Path| {
            let file = format!("[pds]\n{name} = {:?}", path.display().to_string());
            pds(&file).unwrap().unwrap().check_files().map_err(|error| format!("{error:#}"))
        };
        for name in ["admin_password_file", "encryption_file"] {
            assert!(check(name, &path.join("none")).unwrap_err().contains("cannot be read"));
            std::fs::write(&path, "\n").unwrap();
            assert!(check(name, &path).unwrap_err().contains("is empty"));
        }
        std::fs::write(&path, "secret\n").unwrap();
        assert_eq!(check("admin_password_file", &path), Ok(()));
        assert!(check("encryption_file", &path).unwrap_err().contains("no whole key file"));
        let key = folder.path().join("key");
        KeyFile::create(&OsDisk::new(), &key, &mut SystemRandom).unwrap();
        assert_eq!(check("encryption_file", &key), Ok(()));
        assert!(check("witness_path", &folder.path().join("none/witness")).unwrap_err().contains("not there"));
        assert_eq!(check("witness_path", &folder.path().join("witness")), Ok(()));
    }

    #[test]
    fn files_that_would_be_restored_with_the_data_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let told = |path: &Path| {
            let settings = pds(&format!("[pds]\nwitness_path = {:?}", path.display().to_string())).unwrap().unwrap();
            settings.notes(&folder.path().join("data"))
        };
        std::fs::create_dir(folder.path().join("data")).unwrap();
        assert!(told(&folder.path().join("witness")).is_empty());
        assert!(told(&folder.path().join("data/witness"))[0].contains("keep it elsewhere"));
        assert!(pds("[pds]\ncheck_on_boot = true").unwrap().unwrap().notes(folder.path())[0].contains("pds.relays"));
    }
}
