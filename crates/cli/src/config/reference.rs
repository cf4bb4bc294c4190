//! The page of settings is made from their table.

use super::keys;
use std::fs;
use std::path::{Path, PathBuf};

/// What stands above the table.
const ABOVE: &str = "\
# Settings

The settings of `highwater serve`. Each can be given in four ways; the first of them that names it wins:

1. a flag of the command line,
2. a variable of the environment,
3. a key of the TOML file that `--config` names,
4. its default.

`highwater serve --print-config` prints every setting with its value and where that comes from, as a file that sets the
same, and ends. A file with a key that is not in this table is refused, so that a misspelt one does not go unnoticed. What
stands before the dot of a key is its table in the file.

";

/// What stands below it.
const BELOW: &str = "
A configuration file:

```toml
data = \"/var/lib/highwater\"
listen = \"127.0.0.1:4437\"
log_bytes_max = 2147483648
```

## Several listeners

In place of `listen`, `tls_certificate`, `tls_key`, `behind_proxy` and `public_url`, a file may have a table for each
listener, with its own `address` and `services`: `streams` is `/v1/stream`, `xrpc` is `/xrpc` and `/.well-known`, and
`admin` is everything else. Without `services` it has all. `/healthz` and `/readyz` are on every listener. Listeners with
`admin` alone have places for connections of their own, so that an operator gets in when the others are full.

```toml
data = \"/var/lib/highwater\"

[[listener]]
address = \"0.0.0.0:443\"
services = [\"streams\"]
tls_certificate = \"/etc/highwater/tls.pem\"
tls_key = \"/etc/highwater/tls.key\"
public_url = \"https://streams.example.com\"

[[listener]]
address = \"127.0.0.1:4437\"
services = [\"admin\"]
```

## Accounts of the AT Protocol

The settings of the table `[pds]`. With a zone or a public URL no listener is open any more: every request to streams and
to the administration needs a key. What is below `/xrpc` and `/.well-known` needs none of this server's.

```toml
data = \"/var/lib/highwater\"

[[listener]]
address = \"0.0.0.0:443\"
services = [\"xrpc\"]
tls_certificate = \"/etc/highwater/wildcard.pem\"
tls_key = \"/etc/highwater/wildcard.key\"

[[listener]]
address = \"127.0.0.1:4437\"
services = [\"streams\", \"admin\"]

[pds]
zone = \"pds.example.com\"
contact = \"operator@example.com\"
relays = [\"https://bsky.network\"]
check_on_boot = true
witness_path = \"/var/lib/highwater-witness/pds.witness\"
```

## Who is reached

A listener that other machines reach is served with keys alone, and with TLS or behind a proxy that has it; without, the
server does not start and says what is missing. `highwater check-config` tells as much without starting it.

<!-- From the program itself: run `cargo test -p highwater reference` with HIGHWATER_WRITE_DOCS=1 to write it anew. -->
";

fn path() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies two folders deep");
    root.join("docs/reference/settings.md")
}

#[test]
fn the_page_of_settings_has_every_key_of_the_table() {
    let mut page = format!("{ABOVE}| key | flag | variable | default | meaning |\n| --- | --- | --- | --- | --- |\n");
    for key in keys() {
        let (name, flag, variable, default, help) = (key.name, key.flag(), key.variable(), key.default, key.help);
        let default = if default.is_empty() { "none".to_owned() } else { format!("`{default}`") };
        page.push_str(&format!("| `{name}` | `--{flag}` | `{variable}` | {default} | {help} |\n"));
    }
    page.push_str(BELOW);
    if std::env::var_os("HIGHWATER_WRITE_DOCS").is_some() {
        fs::write(path(), &page).expect("the page can be written");
    }
    let written = fs::read_to_string(path()).unwrap_or_default();
    assert!(written == page, "docs/reference/settings.md is old; run this test with HIGHWATER_WRITE_DOCS=1");
}

/// The example is one that the server would take.
#[test]
fn the_example_on_the_page_has_no_unknown_keys() {
    let examples = BELOW.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let resolve = |example: &str| {
        let table: toml::Table = example.parse().expect("TOML");
        super::Settings::resolve(&Default::default(), |_| None, Some(&table)).expect("known keys")
    };
    let settings: Vec<_> = examples.map(resolve).collect();
    assert_eq!(settings[0].log_bytes_max().expect("in range"), 2 << 30);
    assert_eq!(settings[1].listeners().expect("two listeners").len(), 2);
    assert!(settings[2].pds().expect("sound").expect("enabled").is_public());
}
