//! The object store that a setting names.

#[cfg(feature = "s3")]
mod s3;

use anyhow::{Result, bail};
use highwater_disk::OsDisk;
use highwater_store::{ColdTier, Folder};
use std::path::Path;
use std::sync::Arc;

/// Finds the object store of a place; asks it for nothing yet.
///
/// # Errors
/// If the place is none that this program knows.
pub fn open(place: &str) -> Result<Arc<dyn ColdTier>> {
    if place.split_once("://").is_some_and(|(_, rest)| rest.contains('@')) {
        // It is not repeated here: what stands before the sign may be a secret.
        bail!("a place has no credentials in it: they come from the environment alone");
    }
    if let Some(path) = place.strip_prefix("file://") {
        return folder(path);
    }
    if place.starts_with("s3://") {
        return bucket(place);
    }
    bail!("{place} is neither a folder, such as file:///srv/archive, nor a bucket, such as s3://bucket/prefix")
}

fn folder(path: &str) -> Result<Arc<dyn ColdTier>> {
    if !Path::new(path).is_absolute() {
        bail!("file://{path} names no absolute folder, such as file:///srv/archive with three slashes");
    }
    Ok(Arc::new(Folder::new(Arc::new(OsDisk::private_in(Path::new(path))), path)))
}

#[cfg(feature = "s3")]
fn bucket(place: &str) -> Result<Arc<dyn ColdTier>> {
    s3::open(place)
}

#[cfg(not(feature = "s3"))]
fn bucket(_place: &str) -> Result<Arc<dyn ColdTier>> {
    bail!("this program was built without S3; build it with `--features s3`, or name a folder")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(place: &str) -> String {
        open(place).err().expect("refused").to_string()
    }

    #[test]
    fn an_object_store_is_named_without_credentials() {
        let said = refused("s3://AKIAEXAMPLE:wJalrXUtnFEMI@bucket/prefix");
        assert!(said.contains("environment") && !said.contains("AKIA") && !said.contains("wJal"), "{said}");
    }

    #[test]
    fn a_place_is_an_absolute_folder_or_a_bucket() {
        assert_eq!(open("file:///srv/archive").expect("a folder").place(), "file:///srv/archive");
        assert!(refused("file://srv/archive").contains("absolute"));
        assert!(refused("/srv/archive").contains("neither"));
    }
}
