//! The base of an index as it is searched, by whoever may do I/O.

use super::block::{self, BlockHeader, HEADER_BYTES, Identity, Kind};
use super::record::{Image, Record};
use super::scan::{ScanError, damaged, deliver};
use super::table::Table;
use bytes::Bytes;
use highwater_base::codec::DecodeError;
use highwater_disk::File;
use std::path::PathBuf;
use std::sync::Arc;

/// One base, which never changes; its file can be read for as long as this is held, also when its name is gone.
pub(crate) struct Base {
    pub identity: Identity,
    /// Number of the checkpoint that it contains.
    pub checkpoint: u64,
    /// Bytes of it.
    pub bytes: u64,
    /// Its file.
    pub path: PathBuf,
    pub file: Arc<dyn File>,
    pub table: Table,
}

impl std::fmt::Debug for Base {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Base").field("path", &self.path).field("checkpoint", &self.checkpoint).finish_non_exhaustive()
    }
}

impl Base {
    /// Whether it may hold an object; `false` is certain.
    pub fn may_hold(&self, key: u64) -> bool {
        self.table.candidates(key).next().is_some()
    }

    /// What it says of these objects, in the order of `keys`. A block that holds several is read once.
    /// # Errors
    /// Damage of a block, or the disk's error.
    pub fn find(&self, keys: &[u64]) -> Result<Vec<Option<Image>>, ScanError> {
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_unstable_by_key(|index| keys[*index]);
        let mut images = vec![None; keys.len()];
        let mut last: Option<(usize, Vec<Record>)> = None;
        for index in order {
            let mut image = None;
            for number in self.table.candidates(keys[index]) {
                let records = match last.take() {
                    Some((read, records)) if read == number => records,
                    _ => self.block(number)?,
                };
                self.pick(number, &records, keys[index], &mut image)?;
                last = Some((number, records));
            }
            images[index] = image;
        }
        Ok(images)
    }

    /// Takes what a block's records say of one object.
    fn pick(&self, number: usize, records: &[Record], key: u64, image: &mut Option<Image>) -> Result<(), ScanError> {
        let from = records.partition_point(|record| record.key() < Some(key));
        for record in records[from..].iter().take_while(|record| record.key() == Some(key)) {
            let Record::Object { state, front, added, .. } = record else { continue };
            if image.is_none() && state.is_none() {
                return damaged(self.table.place(number).0, "an object's first record is missing");
            }
            // A state that is kept must not keep its whole block in memory.
            let state = state.as_ref().map(|state| Bytes::copy_from_slice(state));
            let applied = image.get_or_insert_with(Image::default).apply(state, *front, added);
            applied.map_err(|error| self.contradiction(number, &error))?;
        }
        Ok(())
    }

    fn contradiction(&self, number: usize, error: &DecodeError) -> ScanError {
        ScanError::Damaged { position: self.table.place(number).0, what: error.to_string() }
    }

    /// The object records of a block, verified.
    fn block(&self, number: usize) -> Result<Vec<Record>, ScanError> {
        let (position, length) = self.table.place(number);
        let mut bytes = vec![0; length as usize];
        if self.file.read_at(&mut bytes, position)? < bytes.len() {
            return damaged(position, "the base's block ends early");
        }
        let bytes = Bytes::from(bytes);
        let header = bytes.first_chunk::<HEADER_BYTES>().map(BlockHeader::decode);
        let Some(Ok(header)) = header else { return damaged(position, "the base's block has no sound header") };
        let found = (header.kind, header.identity, header.checkpoint, header.number as usize);
        if found != (Kind::Base, self.identity, self.checkpoint, number) {
            return damaged(position, "the block belongs to another place or index");
        }
        let body = bytes.slice(HEADER_BYTES..);
        if body.len() != header.body_bytes as usize || crc32c::crc32c(&body) != header.body_sum {
            return damaged(position, "the checksum of the base's block is wrong");
        }
        let mut records = Vec::new();
        deliver(body, position, header.last, &mut |record| {
            records.push(record);
            Ok(())
        })?;
        let ordered =
            records.is_sorted_by_key(Record::key) && records.iter().all(|r| matches!(r, Record::Object { .. }));
        if ordered { Ok(records) } else { damaged(position, "the base's objects are out of order") }
    }

    /// Its objects from a key on, in order.
    pub fn objects_from(&self, key: u64) -> Objects<'_> {
        let number = self.table.start(key);
        Objects { base: self, from: key, number, records: Vec::new().into_iter(), current: None, bytes_read: 0 }
    }
}

// A block is read into memory at once; the table's lengths come from headers that were checked against this.
const _: () = assert!(block::BODY_BYTES_MAX + HEADER_BYTES < u32::MAX as usize);

/// The objects of a base. After an error it goes on behind the block that could not be read, without the objects that have
/// records in it.
pub(crate) struct Objects<'a> {
    base: &'a Base,
    from: u64,
    /// Number of the block that is read next.
    number: usize,
    records: std::vec::IntoIter<Record>,
    /// The object whose records are being read.
    current: Option<(u64, Image)>,
    /// Bytes of the index read so far.
    pub bytes_read: u64,
}

impl Iterator for Objects<'_> {
    type Item = Result<(u64, Image), ScanError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.records.next() {
                match self.take(record) {
                    Ok(Some((key, _))) if key < self.from => continue,
                    Ok(None) => continue,
                    Ok(Some(object)) => return Some(Ok(object)),
                    Err(error) => return Some(Err(error)),
                }
            }
            if self.number >= self.base.table.blocks() {
                return self.current.take().filter(|(key, _)| *key >= self.from).map(Ok);
            }
            let number = self.number;
            self.number += 1;
            self.bytes_read += u64::from(self.base.table.place(number).1);
            match self.base.block(number) {
                Ok(records) => self.records = records.into_iter(),
                Err(error) => {
                    // The object may go on in it.
                    self.current = self.current.take().filter(|(key, _)| *key != self.base.table.first(number));
                    return Some(Err(error));
                }
            }
        }
    }
}

impl Objects<'_> {
    /// Takes a record in; returns the object before it, if that is complete.
    fn take(&mut self, record: Record) -> Result<Option<(u64, Image)>, ScanError> {
        let Record::Object { key, state, front, added } = record else { return Ok(None) };
        let complete = self.current.take_if(|(current, _)| *current != key);
        if self.current.is_none() && state.is_some() {
            self.current = Some((key, Image::default()));
        }
        // Without one it goes on with an object that began in a block which could not be read.
        if let Some((_, image)) = &mut self.current
            && let Err(error) = image.apply(state, front, &added)
        {
            self.current = None;
            return Err(self.base.contradiction(self.number - 1, &error));
        }
        Ok(complete)
    }
}
