//! The bytes of one batch.

use bytes::Bytes;
use highwater_base::codec::{DecodeError, Reader, Writer};
use highwater_base::limits;
use thiserror::Error;

/// The first bytes of every batch, and so of every stream of ours.
pub const MAGIC: [u8; 8] = *b"HWSQLDB\0";

/// The format's version.
pub const VERSION: u16 = 1;

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 48;

/// Bytes of a claim's nonce, and of a lineage.
pub const NONCE_BYTES: usize = 16;

/// Bytes of the largest payload that is believed: what is left of the largest request.
pub const PAYLOAD_BYTES_MAX: u64 = limits::REQUEST_BYTES_MAX - HEADER_BYTES as u64;

/// What a batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An owner takes the stream.
    Claim,
    /// A slice of the commit log.
    Data,
}

/// A batch's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the batch is.
    pub kind: Kind,
    /// Bytes behind the header.
    pub payload_bytes: u32,
    /// The owner's producer epoch.
    pub epoch: u64,
    /// Claim: the last commit known to be whole. Data: the commit that the first payload byte belongs to.
    pub lsn: u64,
    /// Data: where in that commit's record the first payload byte lies.
    pub offset: u64,
    /// CRC-32C of the payload.
    pub payload_crc: u32,
}

/// What a claim says besides its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The epoch that it opens.
    pub epoch: u64,
    /// Drawn anew for each claim.
    pub nonce: [u8; NONCE_BYTES],
    /// Names the claimer's log.
    pub lineage: [u8; NONCE_BYTES],
    /// The last commit that the claimer knows to be whole in the stream.
    pub base_lsn: u64,
}

/// A batch, checked by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Its header.
    pub header: Header,
    /// What it carries.
    pub body: Body,
}

/// What a batch carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// A claim.
    Claim(Claim),
    /// Record bytes.
    Data(Bytes),
}

/// Why bytes are not a batch of this format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Fault {
    /// They do not start as a batch of ours does.
    #[error("no batch starts here")]
    Magic,
    /// A later program wrote them.
    #[error("the batch has format version {0}, which this program does not know")]
    Version(u16),
    /// The header's checksum does not hold.
    #[error("the batch's header is damaged")]
    HeaderCrc,
    /// A field has a value that it cannot have.
    #[error("the batch's field {0} holds a value that it cannot have")]
    Field(&'static str),
    /// The payload's checksum does not hold.
    #[error("the batch's payload is damaged")]
    PayloadCrc,
}

/// The bytes of a claim.
#[must_use]
pub fn encode_claim(claim: &Claim) -> Vec<u8> {
    let mut payload = [0; 2 * NONCE_BYTES];
    payload[..NONCE_BYTES].copy_from_slice(&claim.nonce);
    payload[NONCE_BYTES..].copy_from_slice(&claim.lineage);
    let header = Header {
        kind: Kind::Claim,
        payload_bytes: payload.len() as u32,
        epoch: claim.epoch,
        lsn: claim.base_lsn,
        offset: 0,
        payload_crc: crc32c::crc32c(&payload),
    };
    let mut bytes = encode_header(&header).to_vec();
    bytes.extend_from_slice(&payload);
    bytes
}

/// The header of a batch of data with this payload.
///
/// # Panics
/// If the payload is empty or above [`PAYLOAD_BYTES_MAX`]; the replicator's limit is far below.
#[must_use]
pub fn encode_data_header(epoch: u64, lsn: u64, offset: u64, payload: &[u8]) -> [u8; HEADER_BYTES] {
    assert!(!payload.is_empty() && payload.len() as u64 <= PAYLOAD_BYTES_MAX, "a batch's payload has 1 byte to 32 MiB");
    let payload_crc = crc32c::crc32c(payload);
    encode_header(&Header { kind: Kind::Data, payload_bytes: payload.len() as u32, epoch, lsn, offset, payload_crc })
}

fn encode_header(header: &Header) -> [u8; HEADER_BYTES] {
    let mut writer = Writer::new();
    writer.raw(&MAGIC).u16(VERSION);
    writer.u8(match header.kind {
        Kind::Claim => 1,
        Kind::Data => 2,
    });
    writer.u8(0).u32(header.payload_bytes).u64(header.epoch).u64(header.lsn).u64(header.offset).u32(header.payload_crc);
    let checked = writer.into_vec();
    let mut bytes = [0; HEADER_BYTES];
    let (head, crc) = bytes.split_at_mut(HEADER_BYTES - 4);
    head.copy_from_slice(&checked);
    crc.copy_from_slice(&crc32c::crc32c(&checked).to_le_bytes());
    bytes
}

impl Header {
    /// Reads and checks a header.
    /// # Errors
    /// See [`Fault`].
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Fault> {
        if bytes[..8] != MAGIC {
            return Err(Fault::Magic);
        }
        // The version comes before the checksum: a later format may place that elsewhere.
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            return Err(Fault::Version(version));
        }
        let (checked, crc) = bytes.split_at(HEADER_BYTES - 4);
        if crc32c::crc32c(checked).to_le_bytes() != crc {
            return Err(Fault::HeaderCrc);
        }
        Self::fields(checked).map_err(|_| Fault::Field("kind"))?.check()
    }

    fn fields(checked: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Bytes::copy_from_slice(&checked[10..]));
        let kind = match (reader.u8()?, reader.u8()?) {
            (1, 0) => Kind::Claim,
            (2, 0) => Kind::Data,
            _ => return Err(DecodeError::Invalid("kind")),
        };
        Ok(Self {
            kind,
            payload_bytes: reader.u32()?,
            epoch: reader.u64()?,
            lsn: reader.u64()?,
            offset: reader.u64()?,
            payload_crc: reader.u32()?,
        })
    }

    fn check(self) -> Result<Self, Fault> {
        let fits = match self.kind {
            Kind::Claim => self.payload_bytes as usize == 2 * NONCE_BYTES && self.offset == 0,
            Kind::Data => (1..=PAYLOAD_BYTES_MAX).contains(&u64::from(self.payload_bytes)) && self.lsn > 0,
        };
        match fits {
            _ if self.epoch == 0 || self.epoch > limits::PRODUCER_NUMBER_MAX => Err(Fault::Field("epoch")),
            true => Ok(self),
            false => Err(Fault::Field("payload length")),
        }
    }

    /// Checks a payload against this header.
    /// # Errors
    /// `PayloadCrc`.
    pub fn with_payload(self, payload: Bytes) -> Result<Batch, Fault> {
        if payload.len() != self.payload_bytes as usize || crc32c::crc32c(&payload) != self.payload_crc {
            return Err(Fault::PayloadCrc);
        }
        let body = match self.kind {
            Kind::Data => Body::Data(payload),
            Kind::Claim => {
                let mut claim = Claim { epoch: self.epoch, nonce: [0; 16], lineage: [0; 16], base_lsn: self.lsn };
                claim.nonce.copy_from_slice(&payload[..NONCE_BYTES]);
                claim.lineage.copy_from_slice(&payload[NONCE_BYTES..]);
                Body::Claim(claim)
            }
        };
        Ok(Batch { header: self, body })
    }

    /// Bytes of the whole batch.
    #[must_use]
    pub fn batch_bytes(&self) -> usize {
        HEADER_BYTES + self.payload_bytes as usize
    }
}
