//! What is packaged fits the program: the unit, the container file, and the settings that both start it with.

use crate::bed::{Ran, folder, highwater, program, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn packaged(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies two folders deep");
    root.join("packaging").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(packaged(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The values of a key of the unit.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

#[test]
fn the_packaged_settings_are_ones_that_the_server_takes() {
    let folder = folder();
    let check = |file: &Path| {
        let data = folder.path().join("data");
        highwater(["check-config", "--config", text(file), "--data", text(&data), "--json"])
    };
    let found = check(&packaged("highwater.toml")).json();
    assert_eq!(found["listeners"][0]["keys_required"], false);
    // What is commented out is a proposal that must parse too; it is refused for its missing certificate alone.
    let lines = read("highwater.toml");
    let proposal = lines.split_once("# [[listener]]").expect("a proposal").1;
    let proposal: String = proposal.lines().map(|line| line.trim_start_matches('#').trim().to_owned() + "\n").collect();
    let file = folder.path().join("proposal.toml");
    fs::write(&file, format!("[[listener]]\n{proposal}")).expect("written");
    check(&file).fails(1, &["/etc/highwater/tls.pem cannot be read"]);
}

#[test]
fn the_unit_is_one_that_systemd_takes_and_gives_the_server_time_to_stop() {
    let unit = read("highwater.service");
    for (key, value) in [
        ("Type", "notify"),
        ("DynamicUser", "yes"),
        ("ProtectSystem", "strict"),
        ("StateDirectory", "highwater highwater-witness"),
    ] {
        assert_eq!(values(&unit, key), [value], "{key}");
    }
    let seconds = |key: &str| values(&unit, key)[0].parse::<u64>().expect("seconds");
    let stop_ms = highwater_http::HttpOptions::default().shutdown_ms_max;
    assert!(seconds("TimeoutStopSec") * 1_000 >= 2 * stop_ms, "requests in flight, and the log after them");
    assert!(seconds("WatchdogSec") >= 30, "longer than a disk hangs and recovers");
    let started = values(&unit, "ExecStart")[0];
    let words: Vec<&str> = started.split(' ').collect();
    assert_eq!(words[..3], ["/usr/local/bin/highwater", "serve", "--config"]);
    // Of two state directories the variable would name both.
    assert_eq!(words[4..], ["--data", "%S/highwater"]);
    // A witness where the service may not write is none.
    for page in ["../docs/how-to/pds-deploy.md", "../docs/reference/settings.md"] {
        let page = read(page);
        let witness: Vec<&str> = page.lines().filter(|line| line.starts_with("witness_path")).collect();
        assert_eq!(witness, ["witness_path = \"/var/lib/highwater-witness/pds.witness\""]);
    }
    let drop_in = read("highwater.service.d/tls.conf");
    // A variable would contradict a file with tables, and tables are what serves others.
    assert_eq!(values(&drop_in, "Environment"), [""; 0]);
    for credential in values(&drop_in, "LoadCredential") {
        let name = credential.split(':').next().expect("a name");
        assert!(drop_in.contains(&format!("\"/run/credentials/highwater.service/{name}\"")), "{name} is named");
    }
    assert_eq!(values(&unit, "RestartPreventExitStatus"), ["2"], "the exit status of wrong settings");
    let Some(verify) = verified(&unit, &drop_in) else {
        println!("systemd-analyze is not there");
        return;
    };
    for word in ["Unknown", "ignoring", "Failed to parse", "Invalid"] {
        assert!(!verify.stderr.contains(word), "{}", verify.stderr);
    }
    assert_eq!(verify.status, 0, "{}", verify.stderr);
}

/// What systemd says of the unit with its drop-in, if it is there to be asked.
fn verified(unit: &str, drop_in: &str) -> Option<Ran> {
    let folder = folder();
    let file = folder.path().join("highwater.service");
    // The program must be there for systemd to be content.
    let here = unit.replace("/usr/local/bin/highwater", env!("CARGO_BIN_EXE_highwater"));
    fs::write(&file, here).expect("written");
    let more = folder.path().join("highwater.service.d");
    fs::create_dir(&more).expect("made");
    fs::write(more.join("tls.conf"), drop_in).expect("written");
    let mut command = Command::new("/usr/bin/systemd-analyze");
    command.args(["verify", "--man=no", text(&file)]);
    Ran::try_of(&mut command)
}

#[test]
fn the_container_file_builds_in_stages_and_runs_nothing_as_root() {
    let file = read("Containerfile");
    let of = |word: &str| -> Vec<String> {
        let lines = file.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        lines.map(str::to_owned).collect()
    };
    let stages = of("FROM");
    assert!(stages.len() == 2 && stages[0].ends_with(" AS build"), "{stages:?}");
    let toolchain = fs::read_to_string(packaged("../rust-toolchain.toml")).expect("readable");
    let version = stages[0].split(':').nth(1).and_then(|tag| tag.split('-').next()).expect("a version");
    assert!(toolchain.contains(version), "the image builds with {version}, the tree with {toolchain}");
    assert_eq!(of("USER"), ["10001:10001"]);
    let words = |line: &str| -> Vec<String> {
        let list = line.split_once('[').map(|(_, list)| format!("[{list}")).expect("a list of words");
        serde_json::from_str(&list).expect("JSON")
    };
    assert_eq!(words(&of("ENTRYPOINT")[0]), ["highwater"]);
    let start = words(&of("CMD")[0]);
    assert_eq!(start[..2], ["serve", "--config"]);
    assert!(of("COPY").iter().any(|line| *line == format!("packaging/highwater.toml {}", start[2])), "{start:?}");
    let health = of("HEALTHCHECK");
    let health = words(&health[0]);
    assert_eq!(health[0], "highwater");
    // The same words, asked of a port where nothing listens: a command that is there, and an answer.
    let mut command = program(env!("CARGO_BIN_EXE_highwater"));
    command.args(&health[1..]).arg("http://127.0.0.1:9");
    Ran::of(&mut command, b"").fails(5, &["does not serve"]);
}

/// What a service manager hears, played by a socket: ready once it serves, alive while it does, stopping at SIGTERM.
#[test]
fn a_service_manager_hears_that_the_server_is_ready_lives_and_stops() {
    use std::os::unix::net::UnixDatagram;
    let folder = folder();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(crate::bed::SOON)).expect("a timeout");
    let mut command = crate::bed::Server::command(&folder.path().join("data"), crate::bed::free_port());
    let mut process = command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "400000").spawn().expect("it runs");
    let hear = |wanted: &str| loop {
        let mut bytes = [0; 4_096];
        let length = socket.recv(&mut bytes).unwrap_or_else(|error| panic!("never heard {wanted}: {error}"));
        if String::from_utf8_lossy(&bytes[..length]).lines().any(|line| line == wanted) {
            return;
        }
    };
    hear("READY=1");
    hear("WATCHDOG=1");
    hear("WATCHDOG=1");
    crate::bed::signal(&process, rustix::process::Signal::TERM);
    hear("STOPPING=1");
    assert!(process.wait().expect("it ends").success());
}
