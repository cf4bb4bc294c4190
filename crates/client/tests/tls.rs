//! HTTPS over the client's own connections, with a root of one's own.
//!
//! The certificates in `tls/` are for `localhost` and 127.0.0.1 and good for a hundred years; their root's key was thrown
//! away.

use highwater_client::{Client, Options, Outcome, SetupError, Stream, StreamUrl, TokenSource};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(name)
}

/// A server that answers every request with an empty refusal, over TLS.
fn serve() -> String {
    let certificates = vec![CertificateDer::from_pem_file(file("server.pem")).expect("a certificate")];
    let key = PrivateKeyDer::from_pem_file(file("server.key")).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .expect("a key that fits");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("https://{}/v1/stream/app", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
            // A client that does not trust us hangs up in the handshake.
            drop(answer(StreamOwned::new(session, connection)));
        }
    });
    url
}

fn answer(mut stream: StreamOwned<ServerConnection, TcpStream>) -> std::io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    stream.write_all(b"HTTP/1.1 402 Payment Required\r\nContent-Length: 0\r\n\r\n")?;
    stream.flush()
}

fn options(ca_file: Option<PathBuf>) -> Options {
    Options { patience: Duration::from_secs(2), token: TokenSource::none(), ca_file }
}

fn head(url: &str, options: Options) -> highwater_client::HeadAnswer {
    let client = Arc::new(Client::new(options).expect("readable certificates"));
    Stream::new(client, StreamUrl::parse(url).expect("an address")).head().1
}

#[test]
fn a_root_of_ones_own_is_trusted_when_it_is_named() {
    let url = serve();
    let trusted = head(&url, options(Some(file("root.pem")))).answer;
    assert!(matches!(&trusted.outcome, Outcome::Refused(refusal) if refusal.status == 402), "{trusted:?}");
    let unknown = head(&url, options(None)).answer;
    assert_eq!(
        (unknown.status, &unknown.outcome),
        (0, &Outcome::Unknown),
        "nothing is said to a server nobody vouches for"
    );
    assert!(unknown.message.contains("HIGHWATER_CA_FILE"), "{} does not say what to do", unknown.message);
}

#[test]
fn a_handshake_that_stalls_is_given_up_like_everything_else() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("https://{}/v1/stream/app", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        let silent = listener.accept();
        thread::sleep(Duration::from_secs(10));
        drop(silent);
    });
    let started = Instant::now();
    let patience = Duration::from_millis(300);
    let answer = head(&url, Options { patience, ..options(Some(file("root.pem"))) }).answer;
    assert_eq!(answer.outcome, Outcome::Unknown);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn a_file_without_certificates_is_named() {
    let refused = Client::new(options(Some(file("server.key")))).expect_err("a key is no certificate");
    assert!(matches!(&refused, SetupError::CaEmpty(path) if path.ends_with("server.key")), "{refused}");
    let missing = Client::new(options(Some(file("nowhere.pem")))).expect_err("no file");
    assert!(missing.to_string().contains("nowhere.pem"), "{missing}");
}
