//! A bucket of S3, or of a server that speaks its protocol.
//!
//! The library is asynchronous, and the callers are threads for I/O: a small runtime of its own stands in between. A file
//! goes in one request, so that no broken-off upload of parts stays in the bucket, where nobody sees it and somebody pays;
//! its 64 MiB are held in memory meanwhile, one file at a time.

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use highwater_store::cold::Pieces;
use highwater_store::{ColdError, ColdTier};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{ClientConfigKey, Error, ObjectStoreExt as _, PutPayload, RetryConfig};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// How long a whole file may take: 64 MiB at 0.3 MB/s.
const PUT_PATIENCE: Duration = Duration::from_secs(240);

/// How long anything else may take. A read of 1 MiB that takes longer is better asked for again.
const PATIENCE: Duration = Duration::from_secs(20);

/// A bucket, or what lies below a prefix of it.
pub struct Bucket {
    bucket: AmazonS3,
    prefix: String,
    place: String,
    /// There until this is dropped.
    runtime: Option<Runtime>,
}

/// Finds the bucket of a place such as `s3://bucket/prefix`; asks it for nothing yet.
///
/// # Errors
/// If the place is none, or the environment does not say how to reach it.
pub fn open(place: &str) -> Result<Arc<dyn ColdTier>> {
    let (name, prefix) =
        place.strip_prefix("s3://").map_or(("", ""), |rest| rest.split_once('/').unwrap_or((rest, "")));
    if name.is_empty() {
        bail!("{place} names no bucket, as s3://bucket/prefix does");
    }
    // The library is built without a provider of cryptography for TLS, so that there is one in this program.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        drop(rustls::crypto::ring::default_provider().install_default());
    }
    let retry = RetryConfig { max_retries: 2, retry_timeout: Duration::from_secs(15), ..RetryConfig::default() };
    let built = AmazonS3Builder::from_env().with_bucket_name(name).with_retry(retry);
    let built = built.with_config(AmazonS3ConfigKey::Client(ClientConfigKey::ConnectTimeout), "5 seconds");
    let patience = format!("{} seconds", PUT_PATIENCE.as_secs());
    let built = built.with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), patience).build();
    let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("s3").enable_all().build();
    Ok(Arc::new(Bucket {
        bucket: built.context("the bucket cannot be used")?,
        prefix: prefix.trim_matches('/').to_owned(),
        place: place.trim_end_matches('/').to_owned(),
        runtime: Some(runtime.context("cannot start the runtime")?),
    }))
}

impl Drop for Bucket {
    fn drop(&mut self) {
        // Whoever drops it may be a task, which must not wait for a runtime to end.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Bucket {
    fn path(&self, name: &str) -> Path {
        Path::from(format!("{}/{name}", self.prefix))
    }

    /// Waits for an answer, and not for ever.
    fn wait<T>(&self, patience: Duration, answer: impl Future<Output = Result<T, Error>>) -> Result<T, ColdError> {
        let runtime = self.runtime.as_ref().ok_or_else(|| ColdError::Unreachable("it was closed".to_owned()))?;
        match runtime.block_on(async { tokio::time::timeout(patience, answer).await }) {
            Ok(Ok(answered)) => Ok(answered),
            Ok(Err(Error::NotFound { .. })) => Err(ColdError::Missing),
            Ok(Err(error)) => Err(ColdError::Unreachable(error.to_string())),
            Err(_) => Err(ColdError::Unreachable(format!("no answer within {} s", patience.as_secs()))),
        }
    }
}

impl ColdTier for Bucket {
    fn put(&self, name: &str, _bytes: u64, pieces: Pieces<'_>) -> Result<(), ColdError> {
        let mut payload = Vec::new();
        loop {
            let piece = pieces().map_err(|error| ColdError::Source(error.to_string()))?;
            if piece.is_empty() {
                break;
            }
            payload.push(piece);
        }
        let path = self.path(name);
        self.wait(PUT_PATIENCE, self.bucket.put(&path, PutPayload::from_iter(payload))).map(drop)
    }

    fn read(&self, name: &str, offset: u64, length: u64) -> Result<Bytes, ColdError> {
        let path = self.path(name);
        match self.wait(PATIENCE, self.bucket.get_range(&path, offset..offset.saturating_add(length))) {
            // A range behind the end is refused, and nothing else tells so in every server's words.
            Err(ColdError::Unreachable(why)) => match self.wait(PATIENCE, self.bucket.head(&path)) {
                Ok(head) if head.size <= offset => Ok(Bytes::new()),
                Err(ColdError::Missing) => Err(ColdError::Missing),
                _ => Err(ColdError::Unreachable(why)),
            },
            answer => answer,
        }
    }

    fn delete(&self, name: &str) -> Result<(), ColdError> {
        match self.wait(PATIENCE, self.bucket.delete(&self.path(name))) {
            Err(ColdError::Missing) => Ok(()),
            answer => answer,
        }
    }

    fn place(&self) -> String {
        self.place.clone()
    }
}
