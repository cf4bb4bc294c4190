//! What a bound database remembers beside its log: whose stream it is, and how far log, file and stream are.
//!
//! Two checksummed slots; `docs/formats/commit-log.md` has the bytes.

mod file;
#[cfg(test)]
mod tests;

pub use file::{MetaError, MetaFile, SLOT_BYTES};

use crate::engine::{Binding, LogPosition, PageNumber, Seal, StopCode, StopReason};
use bytes::Bytes;
use highwater_base::codec::{DecodeError, Reader, Writer};
use highwater_base::{Digest, Incarnation, Offset};

/// Bytes of a stream's URL: what the path limit of the server, a host and a bucket need, twice over.
pub const URL_BYTES_MAX: usize = 2_048;
/// Bytes of a cluster id.
pub const CLUSTER_ID_BYTES_MAX: usize = 64;
/// Bytes of a stop reason's text; longer ones are cut.
pub const STOP_TEXT_BYTES_MAX: usize = 512;
/// Bytes of the database header that the fingerprint holds: from the change counter to the end.
pub const FINGERPRINT_HEADER_BYTES: usize = 76;

/// How far the database file is: it was synced and holds every record below `position`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// P_db.
    pub position: LogPosition,
    /// The last commit below it.
    pub lsn: u64,
    /// Pages of the database then.
    pub pages: PageNumber,
    /// Its rolling checksum then.
    pub checksum: u64,
}

/// How the database file looked when its checkpoint was noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    /// Its length in bytes.
    pub length: u64,
    /// Its bytes 24..100.
    pub header: [u8; FINGERPRINT_HEADER_BYTES],
    /// When it was last changed, where the disk tells.
    pub modified_ns: Option<u64>,
}

/// Everything in a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// Whose stream it is, and the lineage of the log.
    pub binding: Binding,
    /// The producer epoch last claimed; 0 for none.
    pub epoch: u64,
    /// The sequence number of the next append.
    pub next_seq: u64,
    /// Every log byte below is held by the stream.
    pub acknowledged: LogPosition,
    /// The first byte of the first record that is not wholly acknowledged.
    pub acknowledged_record: LogPosition,
    /// The commit before it.
    pub acknowledged_lsn: u64,
    /// The end of the last acknowledged write in the stream.
    pub stream_end: Offset,
    /// The batch whose outcome is not known.
    pub in_flight: Option<Seal>,
    /// How far the database file is.
    pub checkpoint: Checkpoint,
    /// What bind logged of a populated file lies below; it does not count as backlog.
    pub image_end: LogPosition,
    /// The database file at the checkpoint.
    pub fingerprint: Option<Fingerprint>,
    /// `synchronous=OFF` was used since the last close.
    pub unsynced: bool,
    /// The machine's boot at which the file was last opened for writing.
    pub boot_id: Option<[u8; 16]>,
    /// The reset that ended this database's life.
    pub stop: Option<StopReason>,
}

impl Meta {
    /// A freshly bound or restored database whose file holds everything up to `checkpoint`.
    #[must_use]
    pub fn new(binding: Binding, checkpoint: Checkpoint, stream_end: Offset) -> Self {
        Self {
            binding,
            epoch: 0,
            next_seq: 0,
            acknowledged: LogPosition::default(),
            acknowledged_record: LogPosition::default(),
            acknowledged_lsn: 0,
            stream_end,
            in_flight: None,
            checkpoint,
            image_end: LogPosition::default(),
            fingerprint: None,
            unsynced: false,
            boot_id: None,
            stop: None,
        }
    }

    /// Where a scan of the log begins: position, and the lsn before it.
    #[must_use]
    pub fn scan_start(&self) -> (LogPosition, u64) {
        let acknowledged = (self.acknowledged_record, self.acknowledged_lsn);
        acknowledged.min((self.checkpoint.position, self.checkpoint.lsn))
    }

    /// The position below which the log is durable for certain: a bad record there is damage, not a torn tail.
    #[must_use]
    pub fn durable_floor(&self) -> LogPosition {
        let sealed = self.in_flight.map_or(LogPosition::default(), |seal| seal.to);
        self.checkpoint.position.max(self.acknowledged).max(sealed)
    }

    /// The slot's body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.raw(&self.binding.lineage).bytes(self.binding.url.as_bytes()).bytes(self.binding.cluster_id.as_bytes());
        w.u64(self.binding.incarnation.get()).u32(self.binding.protocol);
        w.u64(self.epoch).u64(self.next_seq);
        w.u64(self.acknowledged.0).u64(self.acknowledged_record.0).u64(self.acknowledged_lsn).u64(self.stream_end.0);
        w.option(self.in_flight, |w, seal| {
            w.u64(seal.incarnation.get()).u64(seal.epoch).u64(seal.seq).u64(seal.from.0).u64(seal.to.0);
            w.raw(&seal.digest.0).u64(seal.stream_offset.0);
        });
        let at = &self.checkpoint;
        w.u64(at.position.0).u64(at.lsn).u32(at.pages).u64(at.checksum);
        w.u64(self.image_end.0).u32(self.binding.page_size);
        w.option(self.fingerprint, |w, print| {
            w.u64(print.length).raw(&print.header).option(print.modified_ns, |w, time| {
                w.u64(time);
            });
        });
        w.bool(self.unsynced).option(self.boot_id, |w, id| {
            w.raw(&id);
        });
        w.option(self.stop.as_ref(), |w, stop| {
            let number = StopCode::ALL.iter().position(|code| *code == stop.code).unwrap_or(0);
            w.u8(number as u8).bytes(cut(&stop.text, STOP_TEXT_BYTES_MAX).as_bytes());
        });
        w.into_vec()
    }

    /// Reads a slot's body.
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let lineage = r.array()?;
        let (url, cluster_id) = (text(&mut r, URL_BYTES_MAX)?, text(&mut r, CLUSTER_ID_BYTES_MAX)?);
        let (incarnation, protocol) = (incarnation(&mut r)?, r.u32()?);
        let (epoch, next_seq) = (r.u64()?, r.u64()?);
        let (acknowledged, acknowledged_record) = (LogPosition(r.u64()?), LogPosition(r.u64()?));
        let (acknowledged_lsn, stream_end) = (r.u64()?, Offset(r.u64()?));
        let in_flight = r.option(seal)?;
        let checkpoint =
            Checkpoint { position: LogPosition(r.u64()?), lsn: r.u64()?, pages: r.u32()?, checksum: r.u64()? };
        let (image_end, page_size) = (LogPosition(r.u64()?), r.u32()?);
        if !crate::record::is_page_size(page_size) {
            return Err(DecodeError::Invalid("page size"));
        }
        let fingerprint = r.option(|r| {
            Ok(Fingerprint { length: r.u64()?, header: r.array()?, modified_ns: r.option(Reader::u64)? })
        })?;
        let (unsynced, boot_id) = (r.bool()?, r.option(Reader::array)?);
        let stop = r.option(|r| {
            let code = StopCode::ALL.get(usize::from(r.u8()?)).ok_or(DecodeError::Invalid("stop code"))?;
            Ok(StopReason { code: *code, text: text(r, STOP_TEXT_BYTES_MAX)? })
        })?;
        r.finish()?;
        let binding = Binding { url, incarnation, cluster_id, protocol, page_size, lineage };
        let rest = Self::new(binding, checkpoint, stream_end);
        let rest = Self { epoch, next_seq, acknowledged, acknowledged_record, acknowledged_lsn, in_flight, ..rest };
        Ok(Self { image_end, fingerprint, unsynced, boot_id, stop, ..rest })
    }
}

/// At most `bytes` of the text, whole characters.
fn cut(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn text(r: &mut Reader, bytes_max: usize) -> Result<String, DecodeError> {
    let text = r.string()?;
    if text.len() > bytes_max { Err(DecodeError::Invalid("text length")) } else { Ok(text) }
}

fn incarnation(r: &mut Reader) -> Result<Incarnation, DecodeError> {
    Incarnation::new(r.u64()?).ok_or(DecodeError::Invalid("incarnation"))
}

fn seal(r: &mut Reader) -> Result<Seal, DecodeError> {
    Ok(Seal {
        incarnation: incarnation(r)?,
        epoch: r.u64()?,
        seq: r.u64()?,
        from: LogPosition(r.u64()?),
        to: LogPosition(r.u64()?),
        digest: Digest(r.array()?),
        stream_offset: Offset(r.u64()?),
    })
}
