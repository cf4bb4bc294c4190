//! What writes mean for blobs.

use super::*;
use bytes::Bytes;
use proptest::prelude::*;

fn cid(number: u8) -> Cid {
    Cid::of(Codec::Raw, &[number])
}

fn rev(number: u64) -> Tid {
    Tid::from_bits(number).expect("a revision")
}

fn reference(number: u8, bytes: i64, media_type: &str) -> Value {
    let entries = [
        ("$type", Value::Text("blob".into())),
        ("ref", Value::Link(cid(number))),
        ("mimeType", Value::Text(media_type.into())),
        ("size", Value::Integer(bytes)),
    ];
    Value::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// A record that refers to these blobs, each somewhere else in it.
fn record(numbers: &[u8]) -> Value {
    let images = numbers.iter().map(|number| {
        let image = [("image".to_owned(), reference(*number, 10, "image/png"))];
        Value::List(vec![Value::Map(image.into_iter().collect())])
    });
    let entries = [
        ("$type".to_owned(), Value::Text("com.example.post".into())),
        ("images".to_owned(), Value::List(images.collect())),
    ];
    Value::Map(entries.into_iter().collect())
}

fn uploaded(numbers: &[u8]) -> Blobs {
    let mut blobs = Blobs::default();
    for number in numbers {
        let media_type = "image/png".to_owned();
        blobs.apply(&Change::Uploaded { cid: cid(*number), bytes: 10, media_type, at: Micros(0) });
    }
    blobs
}

fn write(blobs: &mut Blobs, writes: &[(&str, &[u8], &[u8])], at: u64) -> Result<Vec<Change>, ReferenceError> {
    let records: Vec<_> = writes.iter().map(|(path, before, after)| (*path, record(before), record(after))).collect();
    let written =
        records.iter().map(|(path, before, after)| Written { path, before: Some(before), after: Some(after) });
    let changes = blobs.written(&written.collect::<Vec<_>>(), rev(at))?;
    changes.iter().for_each(|change| blobs.apply(change));
    Ok(changes)
}

#[test]
fn a_blob_is_public_from_its_first_reference_to_its_last() {
    let mut blobs = uploaded(&[1]);
    assert_eq!(blobs.public(&cid(1)), None, "temporary");
    write(&mut blobs, &[("a/1", &[], &[1])], 1).expect("it is there");
    assert!(blobs.public(&cid(1)).is_some());
    write(&mut blobs, &[("a/2", &[], &[1])], 2).expect("it is there");
    write(&mut blobs, &[("a/1", &[1], &[])], 3).expect("a delete");
    assert!(blobs.public(&cid(1)).is_some(), "one record still refers to it");
    let changes = write(&mut blobs, &[("a/2", &[1], &[])], 4).expect("a delete");
    assert_eq!(changes, [Change::Dereferenced(cid(1), "a/2".into()), Change::Removed(cid(1))]);
    assert_eq!(blobs, Blobs::default());
}

#[test]
fn a_write_that_refers_to_a_blob_that_is_not_there_is_refused() {
    let mut blobs = uploaded(&[1]);
    let refused = write(&mut blobs, &[("a/1", &[], &[1, 2])], 1);
    assert_eq!(refused, Err(ReferenceError::Absent { path: "a/1".into(), cid: cid(2) }));
    assert_eq!(blobs.temporary(), 1, "nothing changed");
}

#[test]
fn a_record_must_say_of_a_blob_what_it_is() {
    let blobs = uploaded(&[1]);
    for (bytes, media_type) in [(11, "image/png"), (-10, "image/png"), (10, "text/html")] {
        let after = reference(1, bytes, media_type);
        let write = Written { path: "a/1", before: None, after: Some(&after) };
        let refused = blobs.written(&[write], rev(1));
        assert!(matches!(refused, Err(ReferenceError::Unlike { .. })), "{bytes} {media_type}: {refused:?}");
    }
}

#[test]
fn a_reference_that_moves_within_a_commit_keeps_its_blob() {
    let mut blobs = uploaded(&[1]);
    write(&mut blobs, &[("a/1", &[], &[1])], 1).expect("it is there");
    for (step, order) in [[("a/1", &[1][..], &[][..]), ("a/2", &[], &[1])], [("a/3", &[], &[1]), ("a/2", &[1], &[])]]
        .into_iter()
        .enumerate()
    {
        let changes = write(&mut blobs, &order, 2 + step as u64).expect("it is there");
        assert!(!changes.contains(&Change::Removed(cid(1))), "{changes:?}");
        assert_eq!(blobs.0[&cid(1)].records.len(), 1);
    }
}

#[test]
fn an_update_that_keeps_a_blob_changes_nothing_of_it() {
    let mut blobs = uploaded(&[1, 2]);
    write(&mut blobs, &[("a/1", &[], &[1])], 1).expect("it is there");
    assert_eq!(write(&mut blobs, &[("a/1", &[1], &[1])], 2), Ok(vec![]));
    write(&mut blobs, &[("a/1", &[1], &[2])], 3).expect("it is there");
    assert_eq!(blobs.0.keys().collect::<Vec<_>>(), [&cid(2)], "the one before had its last reference there");
}

#[test]
fn a_temporary_blob_goes_after_its_time_and_one_that_got_a_reference_meanwhile_stays() {
    let mut blobs = uploaded(&[1, 2]);
    write(&mut blobs, &[("a/1", &[], &[1])], 1).expect("it is there");
    assert_eq!(blobs.expired(Micros(0).plus_seconds(3_599), 3_600), []);
    assert_eq!(blobs.expired(Micros(0).plus_seconds(3_600), 3_600), [cid(2)]);
    // Whoever sweeps saw it temporary; the write came first.
    blobs.apply(&Change::Removed(cid(1)));
    assert!(blobs.public(&cid(1)).is_some());
    blobs.apply(&Change::Removed(cid(2)));
    assert_eq!(blobs.temporary(), 0);
}

#[test]
fn an_upload_of_a_blob_that_is_public_leaves_what_records_say_of_it() {
    let mut blobs = uploaded(&[1]);
    write(&mut blobs, &[("a/1", &[], &[1])], 1).expect("it is there");
    let again = Change::Uploaded { cid: cid(1), bytes: 10, media_type: "text/plain".into(), at: Micros(5) };
    blobs.apply(&again);
    let blob = blobs.public(&cid(1)).expect("still public");
    assert_eq!((blob.media_type.as_str(), blob.uploaded), ("image/png", Micros(5)));
}

#[test]
fn a_list_since_a_revision_has_what_was_referred_to_after_it() {
    let mut blobs = uploaded(&[1, 2, 3]);
    write(&mut blobs, &[("a/1", &[], &[1])], 1).expect("it is there");
    write(&mut blobs, &[("a/2", &[], &[2])], 2).expect("it is there");
    let mut all = [cid(1), cid(2)];
    all.sort();
    assert_eq!(blobs.list(None, None).copied().collect::<Vec<_>>(), all, "without the temporary one");
    assert_eq!(blobs.list(None, Some(rev(1))).collect::<Vec<_>>(), [&cid(2)]);
    assert_eq!(blobs.list(Some(all[0]), None).collect::<Vec<_>>(), [&all[1]]);
    assert_eq!(blobs.list(None, Some(rev(2))).count(), 0);
}

#[test]
fn a_link_that_is_no_reference_to_a_blob_is_none() {
    let block = Cid::of(Codec::DagCbor, b"a record");
    for (kind, target) in [("blob", block), ("com.example.link", cid(1))] {
        let entries = [("$type".to_owned(), Value::Text(kind.into())), ("ref".to_owned(), Value::Link(target))];
        let value = Value::Map(entries.into_iter().collect());
        assert!(references(&value).is_empty(), "{kind} {target}");
    }
}

/// One account's list grew with every reference until no checkpoint could be made of it, and the log was full for all.
#[test]
fn references_are_refused_before_the_list_outgrows_what_the_store_takes() {
    let mut blobs = uploaded(&[1]);
    let after = record(&[1]);
    let rkey = "k".repeat(500);
    let mut refused = None;
    for commit in 0..2_000 {
        let paths: Vec<String> = (0..200).map(|n| format!("com.example.post/{rkey}{commit}-{n}")).collect();
        let writes: Vec<_> = paths.iter().map(|path| Written { path, before: None, after: Some(&after) }).collect();
        match blobs.written(&writes, rev(commit + 1)) {
            Ok(changes) => changes.iter().for_each(|change| blobs.apply(change)),
            Err(why) => {
                refused = Some(why);
                break;
            }
        }
    }
    assert_eq!(refused, Some(ReferenceError::ListFull));
    let mut out = Writer::new();
    blobs.encode(&mut out);
    let bytes = out.into_vec().len() as u64;
    assert_eq!(bytes, 4 + blobs.bytes());
    assert!(bytes > LIST_BYTES_MAX / 2 && bytes <= LIST_BYTES_MAX + 4, "{bytes}");
    // What takes away from it is never refused.
    let path = blobs.0[&cid(1)].records.keys().next().expect("one").clone();
    let gone = Written { path: &path, before: Some(&after), after: None };
    assert_eq!(blobs.written(&[gone], rev(9_999)), Ok(vec![Change::Dereferenced(cid(1), path.clone())]));
}

#[test]
fn one_commit_refers_to_blobs_so_often_and_no_more() {
    let numbers: Vec<u8> = (0..=100).collect();
    let blobs = uploaded(&numbers);
    let after = record(&numbers[..100]);
    let paths: Vec<String> = (0..=100).map(|n| format!("a/{n}")).collect();
    let writes: Vec<_> = paths.iter().map(|path| Written { path, before: None, after: Some(&after) }).collect();
    assert_eq!(blobs.written(&writes[..100], rev(1)).map(|changes| changes.len()), Ok(REFERENCES_MAX));
    assert_eq!(blobs.written(&writes, rev(1)), Err(ReferenceError::TooMany));
}

/// A reference that stood in the record was not judged again, whatever else the next record said of its blob.
#[test]
fn an_update_that_says_something_else_of_the_same_blob_is_refused() {
    let mut blobs = uploaded(&[1]);
    write(&mut blobs, &[("a/1", &[], &[1])], 1).expect("it is there");
    let before = record(&[1]);
    let right = || reference(1, 10, "image/png");
    for wrong in [reference(1, 11, "image/png"), reference(1, 10, "text/html")] {
        for after in [wrong.clone(), Value::List(vec![right(), wrong.clone()]), Value::List(vec![wrong, right()])] {
            let update = Written { path: "a/1", before: Some(&before), after: Some(&after) };
            let refused = blobs.written(&[update], rev(2));
            assert!(matches!(refused, Err(ReferenceError::Unlike { .. })), "{after:?}: {refused:?}");
        }
    }
}

proptest! {
    /// Whatever is written, a blob has a row exactly while the records that there are refer to it, or is temporary.
    #[test]
    fn references_are_those_of_the_records_that_there_are(
        commits in prop::collection::vec(prop::collection::btree_map(0usize..4, prop::collection::btree_set(0u8..5, 0..4), 1..4), 0..20)
    ) {
        const PATHS: [&str; 4] = ["a/0", "a/1", "a/2", "a/3"];
        let mut blobs = Blobs::default();
        let mut records: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
        for (number, commit) in commits.iter().enumerate() {
            for wanted in commit.values().flatten().filter(|wanted| !blobs.0.contains_key(&cid(**wanted))).collect::<Vec<_>>() {
                blobs.apply(&Change::Uploaded { cid: cid(*wanted), bytes: 10, media_type: "image/png".into(), at: Micros(0) });
            }
            let after: Vec<(usize, Vec<u8>)> = commit.iter().map(|(path, after)| (*path, after.iter().copied().collect())).collect();
            let writes: Vec<(&str, Vec<u8>, &[u8])> = after.iter().map(|(path, after)| {
                let path = PATHS[*path];
                (path, records.get(path).cloned().unwrap_or_default(), after.as_slice())
            }).collect();
            let writes: Vec<(&str, &[u8], &[u8])> = writes.iter().map(|(path, before, after)| (*path, before.as_slice(), *after)).collect();
            write(&mut blobs, &writes, number as u64 + 1).expect("all are there");
            for (path, after) in after {
                records.insert(PATHS[path], after);
            }
            for (cid_found, blob) in &blobs.0 {
                let expected: BTreeSet<&str> = records.iter()
                    .filter(|(_, numbers)| numbers.iter().any(|number| cid(*number) == *cid_found))
                    .map(|(path, _)| *path).collect();
                prop_assert_eq!(blob.records.keys().map(String::as_str).collect::<BTreeSet<_>>(), expected);
            }
            for number in records.values().flatten() {
                prop_assert!(blobs.public(&cid(*number)).is_some(), "a record refers to a blob that has no row");
            }
        }
        let mut out = Writer::new();
        blobs.encode(&mut out);
        let mut input = Reader::new(Bytes::from(out.into_vec()));
        prop_assert_eq!(Blobs::decode(&mut input).expect("blobs"), blobs);
        prop_assert_eq!(input.finish(), Ok(()));
    }
}
