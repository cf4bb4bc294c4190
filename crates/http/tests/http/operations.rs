//! Health, readiness, metrics, status.

use crate::fake::{Fake, Stage};
use crate::wire::Server;
use highwater_node::Unavailable;

#[test]
fn a_node_is_alive_before_it_is_ready_and_says_what_it_waits_for() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    assert_eq!(server.ask("GET", "/healthz", &[], b"").status, 200);
    let ready = server.ask("GET", "/readyz", &[], b"");
    assert_eq!((ready.status, ready.text().as_str()), (200, "ready\n"));
    fake.fail(Stage::Head, Unavailable::ApplyStopped);
    assert_eq!(server.ask("GET", "/healthz", &[], b"").status, 200);
    let waits = server.ask("GET", "/readyz", &[], b"");
    assert_eq!((waits.status, waits.text().as_str()), (503, "group 0 is damaged: its log cannot be believed\n"));
    assert_eq!(server.ask("HEAD", "/readyz", &[], b"").status, 503);
}

#[test]
fn metrics_are_openmetrics_with_counts_that_grow() {
    let server = Server::start(Fake::new());
    server.ask("GET", "/v1/stream/none", &[], b"");
    server.ask("BREW", "/v1/stream/none", &[], b"");
    let answer = server.ask("GET", "/metrics", &[], b"");
    assert_eq!(answer.header("content-type"), Some("application/openmetrics-text; version=1.0.0; charset=utf-8"));
    let text = answer.text();
    for line in [
        "# TYPE highwater_http_requests counter",
        "highwater_http_requests_total{method=\"GET\",status=\"4xx\"} 1",
        "highwater_http_requests_total{method=\"other\",status=\"4xx\"} 1",
        "highwater_wal_syncs_total 7",
        "highwater_ready 1",
        "highwater_groups_serving 1",
        "highwater_uptime_seconds 2",
        "highwater_store_dead_bytes{group=\"0\"} 7",
        "highwater_compacted_bytes_total{group=\"0\"} 0",
        "highwater_hot_streams{group=\"0\"} 3",
        "highwater_hot_loads_total{group=\"0\"} 0",
        "highwater_disk_free_bytes 1073741824",
        "highwater_storage_faults 0",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    let mut names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let families = names.len();
    names.dedup();
    assert_eq!(names.len(), families, "each family is described once");
}

#[test]
fn status_is_json_and_admin_routes_take_get_alone() {
    let server = Server::start(Fake::new());
    let answer = server.ask("GET", "/v1/admin/status", &[], b"");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    let status: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(status["node"]["identity"]["cluster_id"], "fake-1");
    assert_eq!(status["node"]["groups"][0]["state"], "serving");
    assert_eq!(status["http"]["mode"], "open");
    for target in ["/healthz", "/v1/admin/status"] {
        let answer = server.ask("POST", target, &[], b"x");
        assert_eq!(answer.told(), (405, "METHOD_NOT_ALLOWED".to_owned()), "{target}");
        assert_eq!(answer.header("allow"), Some("GET, HEAD"));
    }
    assert_eq!(server.ask("GET", "/v1", &[], b"").told(), (404, "NOT_FOUND".to_owned()));
    assert_eq!(server.ask("GET", "/v1/streams", &[], b"").told(), (404, "NOT_FOUND".to_owned()));
}

/// A server that was asked a little of everything, so that every family has samples.
fn asked() -> Server {
    let server = Server::start(Fake::new());
    for (method, target) in
        [("PUT", "/v1/stream/a"), ("GET", "/v1/stream/a"), ("GET", "/v1/stream/none"), ("HEAD", "/x")]
    {
        server.ask(method, target, &[("content-type", "text/plain")], b"");
    }
    server
}

/// Names and values.
type Labels = Vec<(String, String)>;

/// A family: its kind, its help, and its samples' names, labels and values.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    help: String,
    samples: Vec<(String, Labels, f64)>,
}

/// Reads OpenMetrics text as strictly as its specification has it, for what is used here of it.
fn parse(text: &str) -> Vec<(String, Family)> {
    let body = text.strip_suffix("# EOF\n").expect("it ends with # EOF");
    let mut families: Vec<(String, Family)> = Vec::new();
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a kind");
            assert!(families.iter().all(|(other, _)| other != name), "{name} is described twice");
            assert!(
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'),
                "{name}"
            );
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(!name.ends_with("_total"), "{name}: the suffix is its sample's");
            families.push((name.to_owned(), Family { kind: kind.to_owned(), ..Family::default() }));
            continue;
        }
        let (name, family) = families.last_mut().expect("a type comes first");
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (of, help) = rest.split_once(' ').expect("a help");
            assert!(of == name && family.help.is_empty() && help.ends_with('.'), "{line}");
            family.help = help.to_owned();
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (sample, labels) = series.split_once('{').map_or((series, ""), |(sample, labels)| (sample, labels));
        let suffix = sample.strip_prefix(name.as_str()).unwrap_or_else(|| panic!("{line} is not of {name}"));
        let suffixes: &[&str] = match family.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            _ => &["_bucket", "_sum", "_count"],
        };
        assert!(suffixes.contains(&suffix), "{line}: a {} has {suffixes:?}", family.kind);
        let labels = labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty());
        let labels = labels.map(|label| {
            let (label, value) = label.split_once('=').expect("a label");
            (label.to_owned(), value.trim_matches('"').to_owned())
        });
        let sample = (sample.to_owned(), labels.collect::<Labels>(), value.parse().expect("a number"));
        let twice = family.samples.iter().any(|other| (&other.0, &other.1) == (&sample.0, &sample.1));
        assert!(!twice, "{series} comes twice");
        family.samples.push(sample);
    }
    families
}

#[test]
fn metrics_follow_their_format_to_the_letter() {
    let text = asked().ask("GET", "/metrics", &[], b"").text();
    let families = parse(&text);
    assert!(families.len() > 25, "{}", families.len());
    for (name, family) in &families {
        assert!(name.starts_with("highwater_") && !family.help.is_empty(), "{name}");
        for (sample, _, value) in &family.samples {
            assert!(*value >= 0.0, "{sample} {value}");
        }
        if family.kind == "histogram" {
            histogram(name, family);
        }
    }
    let errors = &families.iter().find(|(name, _)| name == "highwater_http_errors").expect("errors are counted").1;
    assert!(
        errors.samples.iter().any(|(_, labels, value)| labels[0].1 == "STREAM_NOT_FOUND" && *value == 1.0),
        "{text}"
    );
}

/// Buckets grow with their ends, the last is for everything, and counts and sums agree.
fn histogram(name: &str, family: &Family) {
    let of = |suffix: &str, work: &str| -> Vec<(String, f64)> {
        let sample = format!("{name}{suffix}");
        let samples = family.samples.iter().filter(|(other, labels, _)| *other == sample && labels[0].1 == work);
        samples.map(|(_, labels, value)| (labels.last().expect("a label").1.clone(), *value)).collect()
    };
    for work in ["create", "append", "read", "head", "delete", "other"] {
        let buckets = of("_bucket", work);
        assert_eq!(buckets.last().map(|(end, _)| end.as_str()), Some("+Inf"), "{work}");
        let ends: Vec<f64> =
            buckets[..buckets.len() - 1].iter().map(|(end, _)| end.parse().expect("a number")).collect();
        assert!(ends.is_sorted() && buckets.is_sorted_by(|a, b| a.1 <= b.1), "{work}: {buckets:?}");
        assert_eq!((of("_count", work)[0].1, of("_sum", work).len()), (buckets[buckets.len() - 1].1, 1), "{work}");
    }
    assert_eq!(of("_count", "create")[0].1, 1.0);
    assert_eq!(of("_count", "read")[0].1, 2.0);
}

/// The page has every family that the server tells, with its help.
#[test]
fn the_page_of_metrics_has_every_family() {
    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
    let mut page = String::from(
        "# Metrics\n\n<!-- Made from what the server tells; HIGHWATER_WRITE_DOCS=1 cargo test -p highwater-http writes it. -->\n\n\
         `GET /metrics` answers OpenMetrics 1.0 text, on listeners with the service `admin`; where there are keys it needs one. \
         Counters count from the server's start; in the text their samples end in `_total`. Buckets of latencies end at 0.25, \
         0.5, 1, 2.5, 5, 10, 25, 50, 100, 250 and 500 ms, and at 1, 2.5 and 10 s.\n\n\
         | name | type | labels | meaning |\n| --- | --- | --- | --- |\n",
    );
    let mut families = parse(&asked().ask("GET", "/metrics", &[], b"").text());
    // What only a listener with TLS tells.
    for told in parse(&crate::encrypted::metrics()) {
        if families.iter().all(|(name, _)| *name != told.0) {
            families.push(told);
        }
    }
    for (name, family) in families {
        let mut labels: Vec<String> =
            family.samples.iter().flat_map(|(_, labels, _)| labels).map(|(label, _)| format!("`{label}`")).collect();
        labels.sort();
        labels.dedup();
        page.push_str(&format!("| `{name}` | {} | {} | {} |\n", family.kind, labels.join(", "), family.help));
    }
    let written = std::fs::read_to_string(PAGE).unwrap_or_default();
    // Behind it stand those of the accounts, which the program's tests write.
    let (written, accounts) = written.split_at(written.find("\n## Accounts\n").unwrap_or(written.len()));
    if std::env::var_os("HIGHWATER_WRITE_DOCS").is_some() {
        std::fs::write(PAGE, format!("{page}{accounts}")).expect("the page can be written");
        return;
    }
    assert!(written == page, "docs/reference/metrics.md is old; run this test with HIGHWATER_WRITE_DOCS=1");
}
