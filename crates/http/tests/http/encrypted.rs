//! TLS: what is spoken over it, and certificates that change while the server runs.

use crate::fake::Fake;
use crate::wire::{Answer, Server, request};
use axum::body::Body;
use axum::http::Request;
use highwater_base::Millis;
use highwater_http::{Front, HttpOptions, Reloaded, Standing, Tls, TlsError};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATH: &str = "/v1/stream/a";

/// A moment at which the pairs of these tests are in force: 2026.
const NOW: Millis = Millis(1_790_000_000_000);

const TEXT: (&str, &str) = ("content-type", "text/plain");

/// A folder with a certificate for `localhost` and its key, made anew each time it is asked to.
struct Pair {
    folder: tempfile::TempDir,
}

impl Pair {
    fn new() -> Self {
        let pair = Self { folder: tempfile::tempdir().expect("a folder") };
        pair.renew();
        pair
    }

    fn certificate(&self) -> PathBuf {
        self.folder.path().join("server.pem")
    }

    fn key(&self) -> PathBuf {
        self.folder.path().join("server.key")
    }

    /// Writes another pair, and gives the certificate in PEM form.
    fn renew(&self) -> String {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
        fs::write(self.certificate(), made.cert.pem()).expect("written");
        fs::write(self.key(), made.signing_key.serialize_pem()).expect("written");
        made.cert.pem()
    }

    /// As [`Self::renew`], with days of 2026 or a later year between which the certificate is in force.
    fn renew_for(&self, from: (i32, u8, u8), until: (i32, u8, u8)) -> String {
        let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        parameters.not_before = rcgen::date_time_ymd(from.0, from.1, from.2);
        parameters.not_after = rcgen::date_time_ymd(until.0, until.1, until.2);
        let key = rcgen::KeyPair::generate().expect("a key");
        let made = parameters.self_signed(&key).expect("a certificate");
        fs::write(self.certificate(), made.pem()).expect("written");
        fs::write(self.key(), key.serialize_pem()).expect("written");
        made.pem()
    }

    fn pem(&self) -> String {
        fs::read_to_string(self.certificate()).expect("readable")
    }

    fn load(&self) -> Tls {
        Tls::load(self.certificate(), self.key()).expect("a pair that fits")
    }
}

fn start(pair: &Pair, options: HttpOptions) -> (Server, Tls) {
    let tls = pair.load();
    (Server::behind(Fake::new(), options, Front::default(), Some(tls.clone())), tls)
}

/// What a client that trusts `pem` alone speaks.
fn client(pem: &str, versions: &[&'static rustls::SupportedProtocolVersion], alpn: &[&[u8]]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")).expect("it can be trusted");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).expect("versions");
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}

/// What a server with TLS tells in its metrics.
pub fn metrics() -> String {
    let pair = Pair::new();
    let (server, _) = start(&pair, HttpOptions::default());
    let mut stream = trusting(&server, &pair.pem()).expect("a handshake");
    stream.write_all(&request("GET", "/metrics", &[], b"")).expect("it is taken");
    Answer::try_read(&mut stream, "GET").expect("an answer").text()
}

type Secure = StreamOwned<ClientConnection, TcpStream>;

fn connect(server: &Server, config: Arc<ClientConfig>) -> Result<Secure, String> {
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(config, name).map_err(|error| error.to_string())?;
    let mut stream = StreamOwned::new(connection, server.connect());
    stream.conn.complete_io(&mut stream.sock).map_err(|error| error.to_string())?;
    Ok(stream)
}

fn trusting(server: &Server, pem: &str) -> Result<Secure, String> {
    connect(server, client(pem, rustls::ALL_VERSIONS, &[]))
}

fn ask(stream: &mut Secure, method: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    stream.write_all(&request(method, PATH, headers, body)).expect("it is taken");
    Answer::try_read(stream, method).expect("a whole answer")
}

#[test]
fn http_1_over_tls_does_the_same_and_names_itself_https() {
    let pair = Pair::new();
    let (server, _) = start(&pair, HttpOptions::default());
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let mut stream = connect(&server, client(&pair.pem(), &[version], &[b"http/1.1"])).expect("a handshake");
        assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
        let created = ask(&mut stream, "PUT", &[TEXT, ("host", "localhost:9")], b"");
        assert_eq!(created.header("location"), Some("https://localhost:9/v1/stream/a"));
        assert_eq!(ask(&mut stream, "POST", &[TEXT], &vec![b'x'; 4 << 20]).status, 204);
        assert_eq!(ask(&mut stream, "GET", &[], b"").body.len(), 4 << 20);
        assert_eq!(ask(&mut stream, "DELETE", &[], b"").status, 204);
    }
}

#[test]
fn http_2_is_chosen_in_the_handshake() {
    let pair = Pair::new();
    let (server, _) = start(&pair, HttpOptions::default());
    let config = client(&pair.pem(), rustls::ALL_VERSIONS, &[b"h2", b"http/1.1"]);
    server.runtime.block_on(async {
        let socket = tokio::net::TcpStream::connect(server.address).await.expect("the server listens");
        let name = ServerName::try_from("localhost").expect("a name");
        let stream = tokio_rustls::TlsConnector::from(config).connect(name, socket).await.expect("a handshake");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
        tokio::spawn(connection);
        let ask = |method: &str, body: Vec<u8>| {
            let uri = format!("https://localhost{PATH}");
            let request = Request::builder().method(method).uri(uri).header("content-type", "text/plain");
            request.body(Body::from(body)).expect("a request")
        };
        let created = sender.send_request(ask("PUT", vec![b'x'; 1 << 20])).await.expect("an answer");
        assert_eq!(created.headers()["location"], "https://localhost/v1/stream/a");
        let read = sender.send_request(ask("GET", vec![])).await.expect("an answer");
        assert_eq!(read.into_body().collect().await.expect("a body").to_bytes().len(), 1 << 20);
    });
}

/// Renewals used to need a restart, and a restart ends every long-poll and event stream.
#[test]
fn a_new_certificate_is_taken_without_dropping_a_connection() {
    let pair = Pair::new();
    let (server, tls) = start(&pair, HttpOptions::default());
    let old = pair.pem();
    let mut before = trusting(&server, &old).expect("the first certificate");
    assert_eq!(ask(&mut before, "PUT", &[TEXT], b"kept").status, 201);
    assert!(matches!(tls.reload(NOW), Reloaded::Unchanged));
    let new = pair.renew();
    assert!(trusting(&server, &new).is_err(), "nothing was taken yet");
    assert!(matches!(tls.reload(NOW), Reloaded::Changed));
    assert!(trusting(&server, &old).is_err(), "new connections get the new one");
    let mut after = trusting(&server, &new).expect("the new certificate");
    assert_eq!(ask(&mut after, "GET", &[], b"").text(), "kept");
    assert_eq!(ask(&mut before, "GET", &[], b"").text(), "kept", "the connection from before goes on");
}

#[test]
fn a_pair_that_does_not_work_changes_nothing_and_is_told_once() {
    let pair = Pair::new();
    let (server, tls) = start(&pair, HttpOptions::default());
    let old = pair.pem();
    let key = fs::read(pair.key()).expect("readable");
    let certificate = fs::read(pair.certificate()).expect("readable");
    let other = Pair::new();
    type Spoil<'a> = (&'a str, Box<dyn Fn() + 'a>, fn(&TlsError) -> bool);
    let spoils: [Spoil<'_>; 5] = [
        ("half of a renewal", Box::new(|| drop(fs::copy(other.certificate(), pair.certificate()))), |error| {
            matches!(error, TlsError::Unusable { .. })
        }),
        ("no certificate", Box::new(|| fs::write(pair.certificate(), b"").expect("written")), |error| {
            matches!(error, TlsError::NoCertificate(_))
        }),
        ("no key", Box::new(|| fs::write(pair.key(), b"not PEM").expect("written")), |error| {
            matches!(error, TlsError::NoKey(_))
        }),
        (
            "broken PEM",
            Box::new(|| fs::write(pair.certificate(), &certificate[..certificate.len() / 2]).expect("written")),
            |error| matches!(error, TlsError::NoCertificate(_)),
        ),
        ("a missing file", Box::new(|| fs::remove_file(pair.key()).expect("removed")), |error| {
            matches!(error, TlsError::Unreadable { .. })
        }),
    ];
    for (what, spoil, expected) in spoils {
        spoil();
        let reloaded = tls.reload(NOW);
        assert!(matches!(&reloaded, Reloaded::Refused(error) if expected(error)), "{what}: {reloaded:?}");
        assert!(matches!(tls.reload(NOW), Reloaded::RefusedBefore), "{what}: told once");
        trusting(&server, &old).unwrap_or_else(|error| panic!("{what}: the old certificate stays: {error}"));
        fs::write(pair.certificate(), &certificate).expect("written");
        fs::write(pair.key(), &key).expect("written");
        assert!(matches!(tls.reload(NOW), Reloaded::Unchanged), "{what}: as before");
    }
}

/// A renewal that went wrong on the side of whoever renews, or a clock that was wrong there, took the place of a
/// certificate that every client took.
#[test]
fn a_renewal_that_clients_would_refuse_waits_while_the_old_one_is_in_force() {
    let pair = Pair::new();
    pair.renew_for((2026, 1, 1), (2027, 1, 1));
    let tls = pair.load();
    let now = |year: i32, month: u64| Millis((u64::try_from(year - 1970).expect("later") * 12 + month) * 2_629_800_000);
    let refused = |reloaded: &Reloaded, expected: Standing| matches!(reloaded, Reloaded::Refused(TlsError::NotInForce { standing, .. }) if *standing == expected);
    pair.renew_for((2025, 1, 1), (2026, 1, 1));
    assert!(refused(&tls.reload(now(2026, 6)), Standing::Expired));
    assert!(matches!(tls.reload(now(2026, 6)), Reloaded::RefusedBefore), "told once");
    pair.renew_for((2026, 9, 1), (2027, 9, 1));
    assert!(refused(&tls.reload(now(2026, 6)), Standing::NotYet));
    assert!(matches!(tls.reload(now(2026, 10)), Reloaded::Changed), "taken when its time has begun");
    pair.renew_for((2025, 1, 1), (2026, 2, 1));
    assert!(matches!(tls.reload(now(2028, 1)), Reloaded::Changed), "neither is in force, and somebody chose this one");
}

/// Nothing ever comes out of a pipe, and a server that reads it does not stop any more.
#[test]
fn what_is_no_file_is_not_read_as_a_certificate() {
    let pair = Pair::new();
    let tls = pair.load();
    fs::remove_file(pair.certificate()).expect("removed");
    fs::create_dir(pair.certificate()).expect("made");
    assert!(matches!(tls.reload(NOW), Reloaded::Refused(TlsError::NoFile(_))));
    fs::remove_dir(pair.certificate()).expect("removed");
    let large = fs::File::create(pair.certificate()).expect("made");
    large.set_len(2 << 20).expect("it grows");
    assert!(matches!(tls.reload_now(NOW), Reloaded::Refused(TlsError::NoFile(_))));
}

/// Who does not look at the log sees it in the metrics, and whoever looks there alone in the status.
#[test]
fn the_end_of_a_certificate_is_in_the_status_and_the_metrics() {
    let pair = Pair::new();
    let pem = pair.renew_for((2026, 1, 1), (2027, 1, 1));
    let (server, _) = start(&pair, HttpOptions::default());
    let get = |target: &str| {
        let mut stream = trusting(&server, &pem).expect("a handshake");
        stream.write_all(&request("GET", target, &[], b"")).expect("it is taken");
        Answer::try_read(&mut stream, "GET").expect("an answer").text()
    };
    let metrics = get("/metrics");
    let file = pair.certificate().display().to_string();
    let expected = format!("highwater_tls_certificate_expires_seconds{{file=\"{file}\"}} 1798761600\n");
    assert!(metrics.contains(&expected), "{metrics}");
    let status: serde_json::Value = serde_json::from_str(&get("/v1/admin/status")).expect("JSON");
    let told = &status["http"]["certificates"][0];
    assert_eq!((told["file"].as_str(), told["until_ms"].as_u64()), (Some(file.as_str()), Some(1_798_761_600_000)));
    assert_eq!(told["state"], "not_yet", "the clock of this server stands at one second: {told}");
}

#[test]
fn files_that_change_are_found_without_a_signal() {
    let pair = Pair::new();
    let (server, _) = start(&pair, HttpOptions { tls_watch_ms: 20, ..HttpOptions::default() });
    let new = pair.renew();
    let start = Instant::now();
    while trusting(&server, &new).is_err() {
        assert!(start.elapsed() < Duration::from_secs(10), "the new certificate was never taken");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_handshake_that_stalls_is_given_up() {
    let pair = Pair::new();
    let (server, _) = start(&pair, HttpOptions { handshake_ms_max: 100, ..HttpOptions::default() });
    for opening in [&b""[..], &[22, 3, 1, 2]] {
        let mut stream = server.connect();
        stream.write_all(opening).expect("it is taken");
        let begun = Instant::now();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).ok();
        assert!(begun.elapsed() < Duration::from_secs(5), "{opening:?}");
    }
    trusting(&server, &pair.pem()).expect("others go on");
}

/// A client that is talked down to plain HTTP would send its key in the clear.
#[test]
fn a_listener_with_tls_answers_nothing_in_the_clear_and_no_old_version() {
    let pair = Pair::new();
    let (server, _) = start(&pair, HttpOptions::default());
    let mut plain = server.connect();
    plain.write_all(&request("GET", "/healthz", &[], b"")).expect("it is taken");
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).ok();
    assert!(!answer.starts_with(b"HTTP/"), "{answer:?}");
    // A greeting of TLS 1.1: the record and the hello name it, and no extension offers more.
    let suites = [0, 2, 0xc0, 0x13];
    let body = [&[3, 2][..], &[7; 32], &[0], &suites, &[1, 0]].concat();
    let length = u16::try_from(body.len()).expect("it is short");
    let hello = [&[1, 0][..], &length.to_be_bytes(), &body].concat();
    let record = [&[22, 3, 2][..], &u16::try_from(hello.len()).expect("it is short").to_be_bytes(), &hello].concat();
    let mut old = server.connect();
    old.write_all(&record).expect("it is taken");
    let mut answer = Vec::new();
    old.read_to_end(&mut answer).ok();
    // A fatal alert: protocol_version, or handshake_failure.
    assert!(matches!(answer.as_slice(), [21, _, _, 0, 2, 2, 70 | 40]), "{answer:?}");
}

#[test]
fn a_server_that_stops_ends_handshakes_and_connections_over_tls() {
    let pair = Pair::new();
    let (mut server, _) = start(&pair, HttpOptions::default());
    let _shaking = server.connect();
    let mut idle = trusting(&server, &pair.pem()).expect("a handshake");
    assert_eq!(ask(&mut idle, "PUT", &[TEXT], b"").status, 201);
    let begun = Instant::now();
    server.stop();
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).ok();
    assert_eq!(rest, b"");
}
