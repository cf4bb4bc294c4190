//! TLS with certificates that change while the server runs.
//!
//! A new pair is taken for new connections when it is whole and fits together; the connections that are there keep the
//! one they began with. A pair that does not work changes nothing, and is told; nor does one whose time is over, or has not
//! begun, while the old one is in force. A certificate whose end comes near is told of each day.

mod validity;

pub use validity::{Standing, Validity};

use highwater_base::{Digest, Millis};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use thiserror::Error;
use tokio_rustls::TlsAcceptor;

/// The versions of HTTP that a client may choose, in the order in which this server likes them.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Bytes of a file of certificates, or of a key: a hundred of the largest certificates.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why a certificate and its key cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{} cannot be read: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file of certificates has none.
    #[error("{} holds no certificate in PEM form", .0.display())]
    NoCertificate(PathBuf),
    /// The file of the key has none.
    #[error("{} holds no private key in PEM form", .0.display())]
    NoKey(PathBuf),
    /// It is no file, or one that no certificate or key is as large as.
    #[error("{} is not a file of at most {FILE_BYTES_MAX} bytes", .0.display())]
    NoFile(PathBuf),
    /// Clients would refuse it now.
    #[error("the certificate in {} {}", path.display(), match standing { Standing::NotYet => "is not in force yet", _ => "has expired" })]
    NotInForce {
        /// The file.
        path: PathBuf,
        /// How it stands.
        standing: Standing,
    },
    /// They cannot be used together.
    #[error("the key in {} does not go with the certificate in {}: {error}", key.display(), certificate.display())]
    Unusable {
        /// The file of certificates.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// Why.
        error: rustls::Error,
    },
}

/// What loading the files anew came to.
#[derive(Debug)]
pub enum Reloaded {
    /// They hold what is in use.
    Unchanged,
    /// New connections get the new pair.
    Changed,
    /// They hold the same unusable pair that was refused before; the old one stays.
    RefusedBefore,
    /// The new pair does not work; the old one stays.
    Refused(TlsError),
}

/// A certificate and its key, from two files in PEM form. Clones share what is loaded.
#[derive(Debug, Clone)]
pub struct Tls(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    certificate: PathBuf,
    key: PathBuf,
    loaded: RwLock<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    /// Of the files that `config` was made from.
    digest: Digest,
    /// When the server's own certificate is in force, if that can be read.
    validity: Option<Validity>,
    /// Of the files that were refused last.
    refused: Option<Digest>,
}

/// Both files, as they were read.
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
    digest: Digest,
}

impl Tls {
    /// Loads a certificate, with those that lead to its root behind it, and its key.
    ///
    /// # Errors
    /// [`TlsError`]: which file, and what is wrong with it.
    pub fn load(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, TlsError> {
        let (certificate, key) = (certificate.into(), key.into());
        let files = read(&certificate, &key)?;
        let (config, validity) = configure(&certificate, &key, &files)?;
        let loaded = RwLock::new(Loaded { config, digest: files.digest, validity, refused: None });
        Ok(Self(Arc::new(Inner { certificate, key, loaded })))
    }

    /// Reads the files again, and takes what they hold for new connections if it works at `now`, by the wall clock.
    #[must_use]
    pub fn reload(&self, now: Millis) -> Reloaded {
        let inner = &*self.0;
        let files = match read(&inner.certificate, &inner.key) {
            Ok(files) => files,
            // A file that is missing is being replaced, or was refused before: its absence is one more content.
            Err(error) => return self.refuse(Digest::of(error.to_string().as_bytes()), error),
        };
        if self.loaded(|loaded| loaded.digest == files.digest) {
            return Reloaded::Unchanged;
        }
        let (config, validity) = match configure(&inner.certificate, &inner.key, &files) {
            Ok(configured) => configured,
            Err(error) => return self.refuse(files.digest, error),
        };
        let standing = |validity: Option<Validity>| validity.map_or(Standing::InForce, |validity| validity.at(now));
        let (old, new) = (standing(self.validity()), standing(validity));
        // One that lies there for tomorrow is taken tomorrow, and any is better than none that is in force.
        if old.is_good() && !new.is_good() {
            let error = TlsError::NotInForce { path: inner.certificate.clone(), standing: new };
            return self.refuse(files.digest, error);
        }
        let mut loaded = inner.loaded.write().unwrap_or_else(PoisonError::into_inner);
        *loaded = Loaded { config, digest: files.digest, validity, refused: None };
        Reloaded::Changed
    }

    /// As [`Self::reload`], but tells of a pair that was refused before once more: somebody asked.
    #[must_use]
    pub fn reload_now(&self, now: Millis) -> Reloaded {
        self.0.loaded.write().unwrap_or_else(PoisonError::into_inner).refused = None;
        self.reload(now)
    }

    /// When the certificate in use is in force; `None` if that cannot be read from it.
    #[must_use]
    pub fn validity(&self) -> Option<Validity> {
        self.loaded(|loaded| loaded.validity)
    }

    /// Tells in the log how the certificate in use stands at `now`, unless it is simply in force.
    pub fn tell_standing(&self, now: Millis) {
        let (certificate, Some(validity)) = (self.certificate().display(), self.validity()) else { return };
        let until = validity.end();
        match validity.at(now) {
            Standing::InForce => {}
            Standing::EndsSoon => {
                tracing::warn!(event = "tls_certificate_ends_soon", %certificate, until, "the certificate ends soon: renew it");
            }
            standing @ (Standing::Expired | Standing::NotYet) => {
                let standing = standing.name();
                tracing::error!(event = "tls_certificate_not_in_force", %certificate, standing, until, "clients refuse the certificate: renew it");
            }
        }
    }

    /// Tells in the log what loading the files anew came to.
    pub fn tell(&self, reloaded: &Reloaded) {
        let certificate = self.certificate().display();
        match reloaded {
            Reloaded::Unchanged => {
                tracing::debug!(event = "tls_unchanged", %certificate, "the certificate is the same")
            }
            Reloaded::Changed => {
                tracing::info!(event = "tls_reloaded", %certificate, "new connections get the new certificate");
            }
            Reloaded::RefusedBefore => {
                tracing::debug!(event = "tls_refused", %certificate, "the certificate is still not usable");
            }
            Reloaded::Refused(error) => {
                let reason = error.to_string();
                tracing::error!(event = "tls_refused", %certificate, reason, "the new certificate is not used, the old one stays");
            }
        }
    }

    /// The file of certificates, by which messages name the pair.
    #[must_use]
    pub fn certificate(&self) -> &Path {
        &self.0.certificate
    }

    /// The file of the key.
    #[must_use]
    pub fn key(&self) -> &Path {
        &self.0.key
    }

    /// What a new connection is greeted with.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.loaded(|loaded| loaded.config.clone()))
    }

    fn refuse(&self, digest: Digest, error: TlsError) -> Reloaded {
        let mut loaded = self.0.loaded.write().unwrap_or_else(PoisonError::into_inner);
        if loaded.refused == Some(digest) {
            return Reloaded::RefusedBefore;
        }
        loaded.refused = Some(digest);
        Reloaded::Refused(error)
    }

    fn loaded<R>(&self, read: impl FnOnce(&Loaded) -> R) -> R {
        read(&self.0.loaded.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn read(certificate: &Path, key: &Path) -> Result<Files, TlsError> {
    let (certificate, key) = (read_file(certificate)?, read_file(key)?);
    let digests = [&certificate, &key].map(|bytes| Digest::of(bytes).to_string());
    let digest = Digest::of(digests.concat().as_bytes());
    Ok(Files { certificate, key, digest })
}

/// Reads a file of the pair. What is no file is not opened: a pipe would give nothing, for ever.
fn read_file(path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |error| TlsError::Unreadable { path: path.to_owned(), error };
    let found = std::fs::metadata(path).map_err(unreadable)?;
    if !found.is_file() || found.len() > FILE_BYTES_MAX {
        return Err(TlsError::NoFile(path.to_owned()));
    }
    std::fs::read(path).map_err(unreadable)
}

/// A configuration of a pair, and when its certificate is in force.
type Configured = (Arc<ServerConfig>, Option<Validity>);

/// Makes a configuration of TLS 1.2 and 1.3 without certificates of clients.
fn configure(certificate: &Path, key: &Path, files: &Files) -> Result<Configured, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&files.certificate).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty());
    let chain = chain.ok_or_else(|| TlsError::NoCertificate(certificate.to_owned()))?;
    // The first is the server's own; those behind it lead to a root, and clients may know another way.
    let validity = chain.first().and_then(|first| Validity::of(first));
    let secret = PrivateKeyDer::from_pem_slice(&files.key).map_err(|_| TlsError::NoKey(key.to_owned()))?;
    // The provider is named, because a process in which two are compiled has no default.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret));
    let unusable = |error| TlsError::Unusable { certificate: certificate.to_owned(), key: key.to_owned(), error };
    let mut config = config.map_err(unusable)?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    Ok((Arc::new(config), validity))
}
