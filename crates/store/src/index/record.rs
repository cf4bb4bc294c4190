//! Records of the index: what changed about one object, or the end of a checkpoint.

use crate::data;
use crate::extent::{self, FileExtent};
use bytes::Bytes;
use highwater_base::codec::{DecodeError, Reader, Writer};

/// Extents of one record at the most, so that a record of a huge object stays far below a block's limit.
const EXTENTS_PER_RECORD_MAX: usize = 32 << 10;
const EXTENT_BYTES: usize = 24;

const CHECKPOINT: u8 = 1;
const OBJECT: u8 = 2;
const REMOVED: u8 = 3;

/// What one checkpoint says beside its objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Head {
    /// The caller's position that the checkpoint covers.
    pub applied: u64,
    /// The caller's own bytes.
    pub meta: Bytes,
    /// Number of the next data file.
    pub file_next: u32,
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    /// The end of a checkpoint.
    Checkpoint(Head),
    /// An object's change: give up what lies below `front`, let these extents take the place of what lies from the first of
    /// them on, take the state if there is one.
    Object { key: u64, state: Option<Bytes>, front: u64, added: Vec<FileExtent> },
    /// The object is gone.
    Removed { key: u64 },
}

impl Record {
    /// The object that it is about.
    pub fn key(&self) -> Option<u64> {
        match self {
            Self::Checkpoint(_) => None,
            Self::Object { key, .. } | Self::Removed { key } => Some(*key),
        }
    }

    /// Appends the record.
    pub fn encode(&self, out: &mut Writer) {
        match self {
            Self::Checkpoint(head) => {
                out.u8(CHECKPOINT).u64(head.applied).u32(head.file_next).bytes(&head.meta);
            }
            Self::Removed { key } => {
                out.u8(REMOVED).u64(*key);
            }
            Self::Object { key, state, front, added } => {
                out.u8(OBJECT).u64(*key).option(state.as_ref(), |out, state| {
                    out.bytes(state);
                });
                out.u64(*front).u32(added.len() as u32);
                for extent in added {
                    out.u64(extent.start).u32(extent.length).u32(extent.file).u32(extent.position).u32(0);
                }
            }
        }
    }

    /// Bytes that [`Record::encode`] appends.
    pub fn encoded_bytes(&self) -> usize {
        match self {
            Self::Checkpoint(head) => 17 + head.meta.len(),
            Self::Removed { .. } => 9,
            Self::Object { state, added, .. } => {
                22 + state.as_ref().map_or(0, |state| 4 + state.len()) + added.len() * EXTENT_BYTES
            }
        }
    }

    /// Takes one record off the front.
    /// # Errors
    /// What is wrong with it.
    pub fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        match reader.u8()? {
            CHECKPOINT => {
                let (applied, file_next) = (reader.u64()?, reader.u32()?);
                Ok(Self::Checkpoint(Head { applied, meta: reader.bytes()?, file_next }))
            }
            OBJECT => {
                let (key, state, front) = (reader.u64()?, reader.option(Reader::bytes)?, reader.u64()?);
                let count = reader.u32()? as usize;
                if count > reader.remaining() / EXTENT_BYTES {
                    return Err(DecodeError::Short);
                }
                let added = (0..count).map(|_| decode_extent(reader)).collect::<Result<_, _>>()?;
                Ok(Self::Object { key, state, front, added })
            }
            REMOVED => Ok(Self::Removed { key: reader.u64()? }),
            _ => Err(DecodeError::Invalid("record kind")),
        }
    }
}

fn decode_extent(reader: &mut Reader) -> Result<FileExtent, DecodeError> {
    let (start, length) = (reader.u64()?, reader.u32()?);
    let extent = FileExtent { start, length, file: reader.u32()?, position: reader.u32()? };
    let file_end = u64::from(extent.position) + data::run_bytes(u64::from(length));
    let within_file = extent.position >= data::PAGE_BYTES && file_end <= u64::from(data::FILE_BYTES_MAX);
    let within_object = length > 0 && start.checked_add(u64::from(length)).is_some();
    if reader.u32()? != 0 || !within_file || !within_object {
        return Err(DecodeError::Invalid("extent"));
    }
    Ok(extent)
}

/// All that the index knows of one object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Image {
    /// The caller's bytes; empty if it never gave any.
    pub state: Bytes,
    /// In order, without gaps.
    pub extents: Vec<FileExtent>,
}

/// Adds extents behind others, of which those that they took the place of are gone.
fn extend(extents: &mut Vec<FileExtent>, added: &[FileExtent]) -> Result<(), DecodeError> {
    for extent in added {
        if extents.last().is_some_and(|last| last.end() != extent.start) {
            return Err(DecodeError::Invalid("extents in order"));
        }
        extents.push(*extent);
    }
    Ok(())
}

impl Image {
    /// Takes an object record in.
    /// # Errors
    /// `Invalid` if the record contradicts what is known.
    pub fn apply(&mut self, state: Option<Bytes>, front: u64, added: &[FileExtent]) -> Result<(), DecodeError> {
        extent::release(&mut self.extents, front, |_| ());
        if let Some(first) = added.first() {
            if self.extents.iter().any(|extent| extent.start < first.start && first.start < extent.end()) {
                return Err(DecodeError::Invalid("extents in order"));
            }
            extent::truncate(&mut self.extents, first.start);
            extend(&mut self.extents, added)?;
        }
        if let Some(state) = state {
            self.state = state;
        }
        Ok(())
    }

    /// The object's records in a base.
    pub fn records(&self, key: u64) -> impl Iterator<Item = Record> + '_ {
        let first = &self.extents[..self.extents.len().min(EXTENTS_PER_RECORD_MAX)];
        let rest = self.extents[first.len()..].chunks(EXTENTS_PER_RECORD_MAX);
        let head = Record::Object { key, state: Some(self.state.clone()), front: 0, added: first.to_vec() };
        let more = rest.map(move |chunk| Record::Object { key, state: None, front: 0, added: chunk.to_vec() });
        std::iter::once(head).chain(more)
    }
}

/// Several records of one object, one after the other, as one change of what the base says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// Whether the object is there in the end.
    pub alive: bool,
    /// Whether the base's object goes on; otherwise it was removed, and this is another.
    pub continues: bool,
    state: Option<Bytes>,
    front: u64,
    /// The object offset from which on the base's extents are gone, if any were added.
    from: Option<u64>,
    added: Vec<FileExtent>,
}

impl Change {
    /// The change that changes nothing.
    pub fn none() -> Self {
        Self { alive: true, continues: true, state: None, front: 0, from: None, added: Vec::new() }
    }

    /// The object goes.
    pub fn remove(&mut self) {
        *self = Self { alive: false, continues: false, ..Self::none() };
    }

    /// Takes an object record in.
    /// # Errors
    /// `Invalid` if the record contradicts those before it.
    pub fn apply(&mut self, state: Option<Bytes>, front: u64, added: &[FileExtent]) -> Result<(), DecodeError> {
        self.front = self.front.max(front);
        extent::release(&mut self.added, front, |_| ());
        if let Some(first) = added.first() {
            self.from = Some(self.from.map_or(first.start, |from| from.min(first.start)));
            extent::truncate(&mut self.added, first.start);
            extend(&mut self.added, added)?;
        }
        self.alive = true;
        self.state = state.or(self.state.take());
        Ok(())
    }

    /// The object after the change, if it is there; `base` is what it was before.
    /// # Errors
    /// `Invalid` if the change contradicts what was.
    pub fn over(self, base: Option<Image>) -> Result<Option<Image>, DecodeError> {
        if !self.alive {
            return Ok(None);
        }
        let mut image = base.filter(|_| self.continues).unwrap_or_default();
        // A front moves where extents begin and never where they end, so that this order is as good as that of the records.
        extent::release(&mut image.extents, self.front, |_| ());
        if let Some(from) = self.from {
            if image.extents.iter().any(|extent| extent.start < from && from < extent.end()) {
                return Err(DecodeError::Invalid("extents in order"));
            }
            extent::truncate(&mut image.extents, from);
        }
        extend(&mut image.extents, &self.added)?;
        image.state = self.state.unwrap_or(image.state);
        Ok(Some(image))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extent(start: u64) -> FileExtent {
        FileExtent { start, length: 10, file: 1, position: 4096 }
    }

    #[test]
    fn a_record_reads_back() {
        let records = [
            Record::Checkpoint(Head { applied: 9, meta: Bytes::from_static(b"meta"), file_next: 4 }),
            Record::Object {
                key: 1,
                state: Some(Bytes::from_static(b"s")),
                front: 1 << 40,
                added: vec![extent(0), extent(10)],
            },
            Record::Object { key: 1, state: None, front: 0, added: vec![] },
            Record::Removed { key: 2 },
        ];
        let mut writer = Writer::new();
        for record in &records {
            let before = writer.len();
            record.encode(&mut writer);
            assert_eq!(writer.len() - before, record.encoded_bytes());
        }
        let mut reader = Reader::new(writer.into_vec().into());
        for record in &records {
            assert_eq!(Record::decode(&mut reader).as_ref(), Ok(record));
        }
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn a_huge_object_is_split_over_records_and_comes_back() {
        let extents = (0..70_000).map(|index| extent(index * 10)).collect();
        let image = Image { state: Bytes::from_static(b"state"), extents };
        let mut back = Image::default();
        let records: Vec<_> = image.records(5).collect();
        assert_eq!(records.len(), 3);
        for record in records {
            let Record::Object { state, front, added, .. } = record else { panic!("an object") };
            back.apply(state, front, &added).expect("in order");
        }
        assert_eq!(back, image);
    }

    type Steps = Vec<Option<(bool, u64, usize, usize)>>;

    /// Object records (`Some`: with a state, how far the front moves, kept, added) and removals, valid in order for an object
    /// that starts with some extents.
    fn history() -> impl Strategy<Value = (usize, Steps)> {
        let step = prop::option::weighted(0.8, (any::<bool>(), 0u64..25, 0usize..6, 0usize..4));
        (0usize..5, prop::collection::vec(step, 0..8))
    }

    /// What is left of an extent begins where a block does, and what moved from there on takes its place.
    #[test]
    fn an_extent_released_in_part_and_then_moved_is_no_contradiction() {
        let whole = FileExtent { start: 100, length: 300_000, file: 1, position: 4096 };
        let mut left = vec![whole];
        extent::release(&mut left, 70_000, |_| ());
        let moved = FileExtent { file: 2, position: 4096, ..left[0] };
        let base = Image { state: Bytes::from_static(b"state"), extents: vec![whole] };
        let (mut direct, mut change) = (base.clone(), Change::none());
        for (front, added) in [(70_000, vec![moved]), (200_000, Vec::new())] {
            direct.apply(None, front, &added).expect("valid");
            change.apply(None, front, &added).expect("valid");
            assert_eq!(change.clone().over(Some(base.clone())), Ok(Some(direct.clone())));
        }
        let mut straddling = Change::none();
        straddling.apply(None, 0, &[FileExtent { start: 5000, ..moved }]).expect("alone it is valid");
        assert!(straddling.over(Some(base)).is_err());
    }

    proptest! {
        #[test]
        fn folding_records_first_equals_applying_them_one_by_one((base, steps) in history()) {
            let base = Image { state: Bytes::from_static(b"base"), extents: (0..base as u64).map(|i| extent(i * 10)).collect() };
            let (mut direct, mut change) = (Some(base.clone()), Change::none());
            for (number, step) in steps.into_iter().enumerate() {
                let Some((with_state, moved, kept, count)) = step else {
                    direct = None;
                    change.remove();
                    continue;
                };
                let image = direct.get_or_insert_with(Image::default);
                let end = image.extents.last().map_or(0, FileExtent::end);
                let front = image.extents.first().map_or(0, |first| (first.start + moved).min(end));
                let mut left = image.extents.clone();
                extent::release(&mut left, front, |_| ());
                let kept = kept.min(left.len());
                // An object that gave up everything goes on where it ended.
                let first = left.first().map_or(end, |first| first.start);
                let from = left[..kept].last().map_or(first, FileExtent::end);
                let added: Vec<_> = (0..count as u64).map(|i| extent(from + i * 10)).collect();
                let state = with_state.then(|| Bytes::from(format!("state {number}")));
                image.apply(state.clone(), front, &added).expect("valid");
                change.apply(state, front, &added).expect("valid");
            }
            prop_assert_eq!(change.over(Some(base)), Ok(direct));
        }

        #[test]
        fn random_bytes_never_panic_the_decoder(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = Reader::new(bytes.into());
            while reader.remaining() > 0 && Record::decode(&mut reader).is_ok() {}
        }
    }
}
