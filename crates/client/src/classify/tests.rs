use super::*;
use proptest::prelude::*;
use ursula_headers::write_outcome::inventory::{INVENTORY, Sample, Write};
use ursula_headers::write_outcome::{WriteKind as TheirKind, WriteOutcome};

fn kind(write: Write) -> WriteKind {
    match write {
        Write::ProducerAppend => WriteKind::Keyed,
        Write::Append | Write::Close => WriteKind::Keyless,
        Write::Create => WriteKind::Create,
        Write::SnapshotPublish | Write::PartsCommit => WriteKind::SnapshotPublish,
        Write::PartStage => WriteKind::PartStage,
        Write::PartsDiscard => WriteKind::PartsDiscard,
        Write::Retention => WriteKind::Retention,
        Write::DeleteStream => WriteKind::Delete,
        Write::CreateBucket => WriteKind::BucketCreate,
    }
}

fn their_kind(kind: WriteKind) -> TheirKind {
    match kind {
        WriteKind::Keyed => TheirKind::Producer,
        WriteKind::Keyless => TheirKind::Append,
        WriteKind::Create => TheirKind::Create,
        WriteKind::SnapshotPublish => TheirKind::Publish,
        WriteKind::PartStage => TheirKind::PartStage,
        WriteKind::PartsDiscard => TheirKind::PartsDiscard,
        WriteKind::Retention => TheirKind::Retention,
        WriteKind::Delete => TheirKind::DeleteStream,
        WriteKind::BucketCreate => TheirKind::CreateBucket,
    }
}

/// Our reading, in the words of the published contract's test kit.
fn reading(answer: &Answer<Written>) -> (&'static str, String) {
    match &answer.outcome {
        Outcome::Done(Written::Receipt(receipt)) if receipt.repeat => ("repeat", String::new()),
        Outcome::Done(_) => ("applied", String::new()),
        Outcome::Refused(refusal) => ("refused", refusal.code.clone()),
        Outcome::Redirected => ("redirected", String::new()),
        Outcome::Unknown => ("unknown", String::new()),
    }
}

fn their_reading(outcome: &WriteOutcome) -> (&'static str, String) {
    match outcome {
        WriteOutcome::Applied => ("applied", String::new()),
        WriteOutcome::Repeat => ("repeat", String::new()),
        WriteOutcome::Refused(code) => ("refused", code.as_str().to_owned()),
        WriteOutcome::Redirected => ("redirected", String::new()),
        WriteOutcome::Unknown => ("unknown", String::new()),
    }
}

fn classify_sample(kind: WriteKind, sample: &Sample) -> Answer<Written> {
    let headers = Headers::new(sample.headers.iter().map(|(name, value)| (*name, value.as_bytes())));
    classify(kind, sample.status, &headers, &sample.body)
}

#[test]
fn every_answer_of_the_published_inventory_reads_as_it_says() {
    let mut rows = 0;
    for row in INVENTORY {
        let answer = match row.sample().expect("a sample is in range") {
            Some(sample) => classify_sample(kind(row.write), &sample),
            None => Answer::none("no answer".to_owned()),
        };
        assert_eq!(reading(&answer), their_reading(&row.outcome), "{}", row.id);
        rows += 1;
    }
    assert_eq!(rows, 76, "the inventory has another size than the contract was read with");
}

#[test]
fn a_proving_code_at_another_status_proves_nothing() {
    for row in INVENTORY {
        let Some(sample) = row.sample().expect("a sample is in range") else { continue };
        for status in [408, 500, 501, 502, 503, 504, 599] {
            let moved = Sample { status, ..sample.clone() };
            let answer = classify_sample(kind(row.write), &moved);
            assert_eq!(reading(&answer), their_reading(&moved.classify()), "{} at {status}", row.id);
        }
    }
}

#[test]
fn a_fence_needs_its_headers() {
    let body = br#"{"error":{"code":"PRODUCER_EPOCH_CLOSED","message":"m"}}"#;
    let answer = classify(WriteKind::Keyed, 403, &Headers::default(), body);
    assert_eq!(reading(&answer), ("refused", "INVALID_REQUEST".to_owned()));
    assert!(matches!(answer.outcome, Outcome::Refused(Refusal { producer: None, .. })));
}

/// HEAD has no body: "INVALID_REQUEST" for a stream that is not there sent people looking for a mistake of their own.
#[test]
fn a_refusal_without_a_body_is_described_by_its_status() {
    let gone = classify(WriteKind::Delete, 404, &Headers::default(), b"");
    assert_eq!(gone.describe(), "HTTP 404 Not Found");
    let told = classify(WriteKind::Delete, 404, &Headers::default(), br#"{"error":{"code":"STREAM_NOT_FOUND"}}"#);
    assert_eq!(told.describe(), "HTTP 404 STREAM_NOT_FOUND");
}

#[test]
fn a_refusal_names_the_limit_and_the_token() {
    let headers = Headers::new([("Ursula-Max-Request-Bytes", "4096"), ("Stream-Incarnation", "4503599627370497")]);
    let answer = classify(WriteKind::Keyed, 413, &headers, br#"{"error":{"code":"REQUEST_TOO_LARGE"}}"#);
    let Outcome::Refused(refusal) = answer.outcome else { panic!("a 413 refuses") };
    assert_eq!(refusal.request_bytes_max, Some(4096));
    assert_eq!(refusal.incarnation, Incarnation::new(4_503_599_627_370_497));
}

proptest! {
    /// Header by header, an answer of the inventory is damaged; both readings stay the same.
    #[test]
    fn damaged_answers_read_as_the_published_classifier_reads_them(
        row in 0..INVENTORY.len(),
        status in prop_oneof![Just(0u16), 100u16..600],
        dropped in 0usize..12,
        doubled in 0usize..12,
        value in prop_oneof![Just(String::new()), "[0-9]{1,20}", "[a-z;= ]{1,24}"],
        changed in 0usize..12,
    ) {
        let row = &INVENTORY[row];
        let Some(mut sample) = row.sample().expect("a sample is in range") else { return Ok(()) };
        if status != 0 {
            sample.status = status;
        }
        if changed < sample.headers.len() {
            sample.headers[changed].1 = value;
        }
        if doubled < sample.headers.len() {
            let copy = sample.headers[doubled].clone();
            sample.headers.push(copy);
        }
        if dropped < sample.headers.len() {
            sample.headers.remove(dropped);
        }
        let kind = kind(row.write);
        prop_assert_eq!(their_kind(kind), sample.kind);
        prop_assert_eq!(reading(&classify_sample(kind, &sample)), their_reading(&sample.classify()));
    }

    #[test]
    fn any_answer_is_read_without_panic(
        status in 0u16..1000,
        fields in proptest::collection::vec(("[a-zA-Z-]{1,24}", proptest::collection::vec(any::<u8>(), 0..32)), 0..8),
        body in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let answer = classify(WriteKind::Keyed, status, &Headers::new(fields), &body);
        prop_assert_eq!(answer.status, status);
    }
}
