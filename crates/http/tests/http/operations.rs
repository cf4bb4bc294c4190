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
