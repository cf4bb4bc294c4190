//! The server's settings: one table of keys gives the flags, the environment, the file, the help and the reference.

mod listeners;
mod pds;

pub use listeners::{ListenerSettings, TlsFiles};
pub use pds::PdsSettings;

use crate::object_store;
use anyhow::{Context as _, Result, bail};
use highwater_node::ColdOptions;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// One setting.
pub struct Key {
    /// As in the file, where a table's name stands before the dot; the flag has hyphens instead, the environment variable
    /// capitals behind `HIGHWATER_`.
    pub name: &'static str,
    /// What it is when nobody sets it.
    pub default: &'static str,
    /// One line of help.
    pub help: &'static str,
}

/// Every setting of `highwater serve`.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().chain(&pds::KEYS)
}

/// The settings of no table.
const KEYS: [Key; 18] = [
    Key { name: "data", default: "./highwater-data", help: "Directory that holds everything the server keeps" },
    Key {
        name: "listen",
        default: "127.0.0.1:4437",
        help: "Address of the HTTP listener; without keys and TLS only a loopback address is served",
    },
    Key {
        name: "tls_certificate",
        default: "",
        help: "PEM file with the listener's certificate and those that lead to its root; read again when it changes, and at SIGHUP",
    },
    Key { name: "tls_key", default: "", help: "PEM file with the certificate's private key" },
    Key {
        name: "behind_proxy",
        default: "",
        help: "Addresses or networks, with commas between them, of the proxies in front that speak TLS for this server; only they may ask then, and their Forwarded or X-Forwarded-For is believed for logs and rate limits",
    },
    Key {
        name: "public_url",
        default: "",
        help: "Where clients reach the server, such as https://streams.example.com; Location is below it",
    },
    Key {
        name: "cors_origins",
        default: "",
        help: "Origins of web pages, with commas between them, that may use a server without keys, besides this machine's own",
    },
    Key {
        name: "groups",
        default: "16",
        help: "Raft groups of a new data directory, fixed at its creation; a group is a unit of leadership",
    },
    Key {
        name: "log_bytes_max",
        default: "1073741824",
        help: "Bytes that the write-ahead log may occupy before writes wait for a checkpoint",
    },
    Key {
        name: "scrub_bytes_per_second",
        default: "8388608",
        help: "Bytes a second that the scrub reads to find damage, a quarter of it while requests are served; 0 turns it off",
    },
    Key {
        name: "hot_metadata_bytes",
        default: "67108864",
        help: "Bytes of memory for what is known of streams beside their bytes, at least 4 MiB; what does not fit is read from disk when it is asked for",
    },
    Key {
        name: "compaction_bytes_per_second",
        default: "33554432",
        help: "Bytes a second that are copied out of data files of which half or more was deleted; 0 turns that off",
    },
    Key {
        name: "object_store",
        default: "",
        help: "Where the oldest data files go when the disk is not to keep them all: a folder that exists, as file:///srv/archive, or s3://bucket/prefix in a program built with S3; empty for nowhere",
    },
    Key {
        name: "object_store_local_bytes",
        default: "17179869184",
        help: "Bytes of data files that stay on the disk when there is an object store; what is beyond them moves, oldest and full files first",
    },
    Key {
        name: "object_store_bytes_per_second",
        default: "67108864",
        help: "Bytes a second that move to the object store, are read back, and come from it to be compacted; reads are not held back",
    },
    Key {
        name: "log",
        default: "info",
        help: "What is logged: error, warn, info, debug, trace, or a filter by module",
    },
    Key { name: "log_format", default: "text", help: "How it is logged: text, or json with one object a line" },
    Key {
        name: "log_requests",
        default: "false",
        help: "Whether every request is logged, one line each: true or false",
    },
];

/// The smallest room for the metadata of streams that is taken, in bytes.
const HOT_METADATA_BYTES_MIN: u64 = 4 << 20;

impl Key {
    /// The flag, without its hyphens in front.
    pub fn flag(&self) -> String {
        self.name.replace(['_', '.'], "-")
    }

    /// The environment variable.
    pub fn variable(&self) -> String {
        format!("HIGHWATER_{}", self.name.replace('.', "_").to_uppercase())
    }
}

/// Where a value comes from; a later one wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// The file named by `--config`.
    File,
    /// The environment.
    Environment,
    /// The command line.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Environment => "environment",
            Self::Flag => "flag",
        })
    }
}

/// Every setting with its value and where that comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    values: BTreeMap<&'static str, (String, Origin)>,
    /// The `[[listener]]` tables of the file.
    tables: Vec<toml::Table>,
}

impl Settings {
    /// Brings the sources together: flag, then environment, then file, then default.
    ///
    /// # Errors
    /// If the file has a key that the table lacks, or a value that is neither text nor a number.
    pub fn resolve(
        flags: &BTreeMap<String, String>,
        environment: impl Fn(&str) -> Option<String>,
        file: Option<&toml::Table>,
    ) -> Result<Self> {
        let (file, tables) = file.map(read_file).transpose()?.unwrap_or_default();
        let value = |key: &Key| {
            let candidates = [
                (flags.get(key.name).cloned(), Origin::Flag),
                (environment(&key.variable()), Origin::Environment),
                (file.get(key.name).cloned(), Origin::File),
            ];
            let set = candidates.into_iter().find_map(|(value, origin)| value.map(|value| (value, origin)));
            set.unwrap_or_else(|| (key.default.to_owned(), Origin::Default))
        };
        Ok(Self { values: keys().map(|key| (key.name, value(key))).collect(), tables })
    }

    /// Reads the file of `--config`.
    ///
    /// # Errors
    /// If it cannot be read or is not TOML.
    pub fn load_file(path: &Path) -> Result<toml::Table> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        text.parse().with_context(|| format!("{} is not TOML", path.display()))
    }

    fn text(&self, name: &str) -> &str {
        self.values.get(name).map_or("", |(value, _)| value)
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T> {
        let (value, origin) = self.values.get(name).with_context(|| format!("there is no setting {name}"))?;
        value
            .parse()
            .ok()
            .with_context(|| format!("{name} = {value:?} (from the {origin}) is not a whole number in range"))
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        PathBuf::from(self.text("data"))
    }

    /// The listeners, from the one that the settings describe or from the file's tables.
    ///
    /// # Errors
    /// What is wrong with which of them.
    pub fn listeners(&self) -> Result<Vec<ListenerSettings>> {
        if self.tables.is_empty() {
            return Ok(vec![ListenerSettings::simple(|name| self.text(name))?]);
        }
        let twice = ListenerSettings::KEYS.into_iter().find_map(|name| {
            let (value, origin) = self.values.get(name)?;
            (*origin != Origin::Default && !value.is_empty()).then_some((name, origin))
        });
        if let Some((name, origin)) = twice {
            bail!(
                "{name} is set by the {origin}, and the configuration file has [[listener]] tables: state it in each of \
                 the tables, or leave them out"
            );
        }
        let origins = self.text("cors_origins");
        (1..).zip(&self.tables).map(|(number, table)| ListenerSettings::table(number, table, origins)).collect()
    }

    /// Whether lines of the log are JSON.
    ///
    /// # Errors
    /// If it is neither `text` nor `json`.
    pub fn log_is_json(&self) -> Result<bool> {
        match self.text("log_format") {
            "text" => Ok(false),
            "json" => Ok(true),
            other => bail!("log_format = {other:?} is neither text nor json"),
        }
    }

    /// Whether every request is logged.
    ///
    /// # Errors
    /// If it is neither `true` nor `false`.
    pub fn log_requests(&self) -> Result<bool> {
        let text = self.text("log_requests");
        text.parse().ok().with_context(|| format!("log_requests = {text:?} is neither true nor false"))
    }

    /// What is logged.
    pub fn log(&self) -> &str {
        self.text("log")
    }

    /// Raft groups of a new data directory.
    ///
    /// # Errors
    /// If it is not in 1..=1024.
    pub fn groups(&self) -> Result<u32> {
        match self.number("groups")? {
            groups @ 1..=1024 => Ok(groups),
            groups => bail!("groups = {groups} is not between 1 and 1024"),
        }
    }

    /// Bytes that the log may occupy.
    ///
    /// # Errors
    /// If it is below 256 MiB: four segments, so that one can be reclaimed while another is filled.
    pub fn log_bytes_max(&self) -> Result<u64> {
        match self.number("log_bytes_max")? {
            bytes if bytes >= 256 << 20 => Ok(bytes),
            bytes => bail!("log_bytes_max = {bytes} is below {} (256 MiB)", 256 << 20),
        }
    }

    /// Bytes a second that the scrub reads.
    ///
    /// # Errors
    /// If it is no number.
    pub fn scrub_bytes_per_second(&self) -> Result<u64> {
        self.number("scrub_bytes_per_second")
    }

    /// Bytes of memory for the metadata of streams.
    ///
    /// # Errors
    /// If it is no number, or below 4 MiB: each of the groups needs room for the streams that it works on.
    pub fn hot_metadata_bytes(&self) -> Result<u64> {
        match self.number("hot_metadata_bytes")? {
            bytes if bytes >= HOT_METADATA_BYTES_MIN => Ok(bytes),
            bytes => bail!("hot_metadata_bytes = {bytes} is below {HOT_METADATA_BYTES_MIN} (4 MiB)"),
        }
    }

    /// Bytes a second that compaction copies.
    ///
    /// # Errors
    /// If it is no number.
    pub fn compaction_bytes_per_second(&self) -> Result<u64> {
        self.number("compaction_bytes_per_second")
    }

    /// The object store, if one is set.
    ///
    /// # Errors
    /// What is wrong with its place or its bounds.
    pub fn cold(&self) -> Result<Option<ColdOptions>> {
        let place = self.text("object_store");
        let local_bytes_max = self.number("object_store_local_bytes")?;
        let bytes_per_second = match self.number("object_store_bytes_per_second")? {
            bytes if bytes >= 1 << 20 => bytes,
            bytes => bail!("object_store_bytes_per_second = {bytes} is below {} (1 MiB)", 1 << 20),
        };
        if place.is_empty() {
            return Ok(None);
        }
        let tier = object_store::open(place).context("object_store")?;
        Ok(Some(ColdOptions { local_bytes_max, bytes_per_second, ..ColdOptions::new(tier) }))
    }

    /// The settings as a TOML file, each with its origin.
    pub fn print(&self) -> String {
        let line = |(name, (value, origin)): (&&str, &(String, Origin))| {
            let bare = value.parse::<u64>().is_ok() || value.parse::<bool>().is_ok();
            let value = if bare { value.clone() } else { format!("{value:?}") };
            format!("{name} = {value}  # {origin}\n")
        };
        let of_listeners = |name: &str| !self.tables.is_empty() && ListenerSettings::KEYS.contains(&name);
        let of_pds = self.values.iter().filter_map(|(name, value)| Some((name.strip_prefix(TABLE_PDS)?, value)));
        let of_pds = of_pds.map(|(name, value)| line((&name, value)));
        let plain =
            self.values.iter().filter(|(name, _)| !of_listeners(name) && !name.starts_with(TABLE_PDS)).map(line);
        let keys = plain.chain(std::iter::once("\n[pds]\n".to_owned())).chain(of_pds);
        let tables = self.tables.iter().map(|table| format!("\n[[listener]]  # {}\n{table}", Origin::File));
        keys.chain(tables).collect()
    }
}

/// How the names of the settings of the accounts begin, which have a table of their own.
const TABLE_PDS: &str = "pds.";

/// The values that a file gives to keys, and its tables of listeners.
type FileContent = (BTreeMap<&'static str, String>, Vec<toml::Table>);

fn read_file(table: &toml::Table) -> Result<FileContent> {
    let (mut values, mut tables) = FileContent::default();
    for (name, value) in table {
        if let ("listener", toml::Value::Array(all)) = (name.as_str(), value) {
            for one in all {
                let one = one.as_table().context("listener is not a list of tables: write [[listener]]")?;
                tables.push(one.clone());
            }
            continue;
        }
        if name == "pds" {
            let inside = value.as_table().context("pds is not a table: write [pds], and its settings below it")?;
            for (name, value) in inside {
                let name = format!("{TABLE_PDS}{name}");
                values.insert(known(&name)?.name, value_text(&name, value)?);
            }
            continue;
        }
        if name == "listener" {
            bail!("the configuration file has [listener]: a listener is [[listener]], in two brackets each side");
        }
        values.insert(known(name)?.name, value_text(name, value)?);
    }
    Ok((values, tables))
}

fn known(name: &str) -> Result<&'static Key> {
    keys().find(|key| key.name == name).with_context(|| {
        let known = keys().map(|key| key.name).collect::<Vec<_>>().join(", ");
        format!("the configuration file sets {name}, which is no setting; the settings are {known}, and [[listener]]")
    })
}

/// A value as a flag would give it.
fn value_text(name: &str, value: &toml::Value) -> Result<String> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Boolean(flag) => Ok(flag.to_string()),
        toml::Value::Array(items) if items.iter().all(toml::Value::is_str) => {
            Ok(items.iter().filter_map(toml::Value::as_str).collect::<Vec<_>>().join(","))
        }
        _ => bail!(
            "the configuration file sets {name} to {value}, which is neither text, a list of texts, a whole number, \
             true nor false"
        ),
    }
}

#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(flags: &[(&str, &str)], environment: &[(&str, &str)], file: &str) -> Result<Settings> {
        let flags = flags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let environment: BTreeMap<_, _> = environment.iter().copied().collect();
        let variable = |name: &str| environment.get(name).map(|value| (*value).to_owned());
        Settings::resolve(&flags, variable, Some(&file.parse()?))
    }

    #[test]
    fn a_flag_wins_over_the_environment_over_the_file_over_the_default() {
        let all = settings(&[("groups", "1")], &[("HIGHWATER_GROUPS", "2")], "groups = 3").unwrap();
        assert_eq!(all.groups().unwrap(), 1);
        let two = settings(&[], &[("HIGHWATER_GROUPS", "2")], "groups = 3").unwrap();
        assert_eq!(two.groups().unwrap(), 2);
        assert_eq!(settings(&[], &[], "groups = 3").unwrap().groups().unwrap(), 3);
        assert_eq!(settings(&[], &[], "").unwrap().groups().unwrap(), 16);
    }

    #[test]
    fn an_unknown_key_refuses_to_start_and_names_the_known_ones() {
        let error = settings(&[], &[], "lisen = \"127.0.0.1:1\"").unwrap_err().to_string();
        assert!(error.contains("lisen") && error.contains("listen"), "{error}");
        let error = settings(&[], &[], "[listener]\naddress = \"127.0.0.1:1\"").unwrap_err().to_string();
        assert!(error.contains("[[listener]]") && error.contains("two brackets"), "{error}");
    }

    #[test]
    fn a_wrong_value_names_its_setting_and_its_origin() {
        let all = settings(&[], &[("HIGHWATER_GROUPS", "many")], "").unwrap();
        let error = all.groups().unwrap_err().to_string();
        assert!(error.contains("groups") && error.contains("environment"), "{error}");
        assert!(settings(&[("groups", "0")], &[], "").unwrap().groups().is_err());
        assert!(settings(&[("log_bytes_max", "1")], &[], "").unwrap().log_bytes_max().is_err());
        assert!(settings(&[("hot_metadata_bytes", "1048576")], &[], "").unwrap().hot_metadata_bytes().is_err());
    }

    #[test]
    fn the_printed_settings_are_a_file_that_sets_the_same() {
        let all = settings(&[("groups", "4")], &[("HIGHWATER_LOG", "debug")], "listen = \"[::1]:9\"").unwrap();
        let again = settings(&[], &[], &all.print()).unwrap();
        assert_eq!((again.groups().unwrap(), again.log()), (4, "debug"));
        assert_eq!(again.listeners().unwrap()[0].address, "[::1]:9");
        let tables = "log_requests = true\n[[listener]]\naddress = \"[::1]:9\"\nservices = [\"admin\"]\n\
                      [[listener]]\naddress = \"127.0.0.1:1\"\nbehind_proxy = [\"10.0.0.0/8\", \"fd00::1\"]\n";
        let all = settings(&[], &[], tables).unwrap();
        let again = settings(&[], &[], &all.print()).unwrap();
        assert_eq!(again.listeners().unwrap(), all.listeners().unwrap());
        assert!(again.log_requests().unwrap());
    }
}
