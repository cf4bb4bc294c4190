//! Who may depend on whom, and on what from outside.

use crate::process::root;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Crates that decide: inside the workspace they depend on `base` only, and from outside on little.
const PURE: [(&str, &[&str]); 7] = [
    ("highwater-base", &["bytes", "thiserror", "zerocopy", "blake3", "crc32c"]),
    ("highwater-stream", &["bytes", "thiserror", "zerocopy", "blake3", "crc32c"]),
    ("highwater-control", &["bytes", "thiserror", "zerocopy", "blake3", "crc32c"]),
    ("highwater-consensus", &["bytes", "thiserror", "zerocopy", "blake3", "crc32c", "raft", "slog"]),
    ("highwater-repo", &["bytes", "thiserror", "base64", "bs58", "k256", "p256", "primeorder", "serde", "sha2"]),
    ("highwater-consumer", &["highwater-repo", "bytes", "thiserror"]),
    // What an account holds are repositories; it knows no other way to make one.
    ("highwater-pds", &["highwater-repo", "bytes", "thiserror"]),
];

/// Lower to higher: a crate depends only on crates that stand before it.
const LAYERS: [&str; 21] = [
    "highwater-base",
    "highwater-disk",
    "highwater-stream",
    "highwater-control",
    "highwater-repo",
    "highwater-consumer",
    "highwater-pds",
    "highwater-consensus",
    "highwater-wal",
    "highwater-store",
    "highwater-client",
    "highwater-sqlite",
    "highwater-node",
    "highwater-host",
    "highwater-xrpc",
    "highwater-http",
    "highwater-sim",
    "highwater",
    "highwater-bench",
    "highwater-fuzz",
    "xtask",
];

/// What consensus and storage rest on, pinned to one version.
const PINNED: [&str; 9] = ["raft", "slog", "crc32c", "blake3", "zstd", "rustix", "k256", "p256", "primeorder"];

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn packages(metadata: &Value) -> &Vec<Value> {
    metadata["packages"].as_array().expect("metadata lists packages")
}

/// Package name → (dependency, requirement), without those for tests.
fn edges(metadata: &Value) -> BTreeMap<&str, Vec<(&str, &str)>> {
    let ours = packages(metadata).iter().filter(|package| package["source"].is_null());
    ours.map(|package| {
        let dependencies = package["dependencies"].as_array().expect("a list of dependencies");
        let normal = dependencies.iter().filter(|dependency| text(dependency, "kind") != "dev");
        (text(package, "name"), normal.map(|d| (text(d, "name"), text(d, "req"))).collect())
    })
    .collect()
}

#[test]
fn pure_crates_depend_on_base_and_little_else() {
    let metadata = metadata();
    let edges = edges(&metadata);
    for (name, outside) in PURE {
        for (dependency, _) in &edges[name] {
            let allowed = *dependency == "highwater-base" || outside.contains(dependency);
            assert!(allowed, "{name} must not depend on {dependency}");
        }
    }
}

#[test]
fn nothing_calls_back_up() {
    let metadata = metadata();
    let rank = |name: &str| LAYERS.iter().position(|layer| *layer == name);
    for (name, dependencies) in edges(&metadata) {
        let own = rank(name).unwrap_or_else(|| panic!("{name} has no place among the layers"));
        for (dependency, _) in dependencies {
            assert!(rank(dependency).is_none_or(|other| other < own), "{name} must not depend on {dependency}");
        }
    }
}

#[test]
fn no_raft_type_leaves_consensus() {
    let metadata = metadata();
    for (name, dependencies) in edges(&metadata) {
        let uses = dependencies.iter().any(|(dependency, _)| *dependency == "raft");
        assert!(!uses || name == "highwater-consensus", "{name} must not depend on raft");
    }
}

#[test]
fn consensus_and_storage_are_pinned_exactly() {
    let metadata = metadata();
    for (name, dependencies) in edges(&metadata) {
        for (dependency, requirement) in dependencies {
            let exact = requirement.starts_with('=');
            assert!(exact || !PINNED.contains(&dependency), "{name}: {dependency} {requirement} is not exact");
        }
    }
}

fn deny_file() -> toml::Table {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml is there");
    text.parse().expect("deny.toml is TOML")
}

#[test]
fn every_dependency_has_a_permitted_licence_and_comes_from_the_registry() {
    let (deny, metadata) = (deny_file(), metadata());
    let listed = deny["licenses"]["allow"].as_array().expect("a list");
    let allowed: BTreeSet<&str> = listed.iter().filter_map(toml::Value::as_str).collect();
    for package in packages(&metadata).iter().filter(|package| !package["source"].is_null()) {
        let name = text(package, "name");
        assert!(text(package, "source").starts_with("registry+"), "{name} does not come from the registry");
        assert!(permitted(text(package, "license"), &allowed), "{name}: {}", package["license"]);
    }
}

/// Whether an SPDX expression can be met: in each part joined by AND, one of the alternatives is allowed.
fn permitted(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let expression = expression.replace(['(', ')'], "").replace('/', " OR ");
    let alternatives = |part: &str| part.split(" OR ").any(|licence| allowed.contains(licence.trim()));
    !expression.is_empty() && expression.split(" AND ").all(alternatives)
}

#[test]
fn denied_crates_are_absent_and_every_exception_has_a_reason() {
    let (deny, metadata) = (deny_file(), metadata());
    let present: BTreeSet<&str> = packages(&metadata).iter().map(|package| text(package, "name")).collect();
    for entry in deny["bans"]["deny"].as_array().expect("a list") {
        let name = entry["name"].as_str().expect("a name");
        assert!(!present.contains(name), "{name} is denied: {}", entry["reason"]);
    }
    let ignored = deny["advisories"]["ignore"].as_array().expect("a list");
    assert_eq!(ignored.len(), 3, "an advisory is ignored only with raft 0.7.0's reasons");
    for entry in ignored {
        assert!(entry["reason"].as_str().is_some_and(|reason| reason.len() > 20), "{entry} has no reason");
    }
}
