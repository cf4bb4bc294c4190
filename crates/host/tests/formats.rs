//! The bytes of the small files, as `docs/formats/pds-directory.md` has them.

use bytes::Bytes;
use highwater_base::codec::DecodeError;
use highwater_host::backup::{Note, decode_note, encode_note};
use highwater_host::layout::{decode_floor, decode_layout, encode_floor, encode_layout};
use highwater_host::witness::{decode_witness, encode_witness};
use highwater_pds::Witness;
use highwater_repo::Tid;
use std::path::Path;

/// Set to write golden files that are missing. One that is there is never rewritten.
const WRITE: &str = "HIGHWATER_WRITE_GOLDEN";

fn golden(name: &str, bytes: &[u8]) -> Bytes {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
    if std::env::var_os(WRITE).is_some() && !path.exists() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(&path, bytes).expect("written");
    }
    let kept = std::fs::read(&path).expect("the golden file is there");
    assert_eq!(kept, bytes, "{name} changed: that needs a new version");
    kept.into()
}

#[test]
fn kept_files_of_every_version_read_as_they_were_written() {
    let note = Note { applied: 77, at: 1_796_000_000_000_000 };
    let rev = Some(Tid::new(1_796_000_000_000_000, 3));
    let witness = Witness { nonce: 0x0123_4567_89ab_cdef, seq: 9_001, rev, account: 12 };
    assert_eq!(decode_layout(&golden("layout-1.bin", &encode_layout(None))), Ok(None));
    assert_eq!(decode_layout(&golden("layout-key-1.bin", &encode_layout(Some(7)))), Ok(Some(7)));
    assert_eq!(decode_floor(&golden("sequence-1.bin", &encode_floor(1 << 40))), Ok(1 << 40));
    assert_eq!(decode_note(&golden("backup-1.bin", &encode_note(&note))), Ok(note));
    assert_eq!(decode_witness(&golden("witness-2.bin", &encode_witness(&witness))), Ok(witness));
}

#[test]
fn a_later_version_of_each_file_is_refused() {
    let later = |bytes: Vec<u8>| {
        let mut bytes = bytes;
        let end = bytes.len() - 4;
        bytes[8] += 1;
        let checksum = crc32c::crc32c(&bytes[..end]).to_le_bytes();
        bytes[end..].copy_from_slice(&checksum);
        Bytes::from(bytes)
    };
    let refused = Err(DecodeError::Version(2));
    let old = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/witness-1.bin")).expect("it is there");
    assert_eq!(decode_witness(&old.into()), Err(DecodeError::Version(1)), "nothing was released with it");
    assert_eq!(decode_layout(&later(encode_layout(None))).map(drop), refused);
    assert_eq!(decode_floor(&later(encode_floor(1))).map(drop), refused);
    assert_eq!(decode_note(&later(encode_note(&Note { applied: 1, at: 1 }))).map(drop), refused);
    let witness = Witness { seq: 1, ..Witness::default() };
    assert_eq!(decode_witness(&later(encode_witness(&witness))), Err(DecodeError::Version(3)));
    let impossible = Witness { seq: 1 << 53, ..witness };
    assert!(decode_witness(&encode_witness(&impossible).into()).is_err());
}
