//! Reading a stream to its end, or following it.

use super::{done, is_json};
use crate::output;
use anyhow::{Context as _, Result};
use highwater_client::{Answer, From, Incarnation, Offset, Outcome, Piece, Read, Stream};
use serde::Serialize;
use serde_json::value::RawValue;
use std::io::Write as _;
use std::time::Duration;

/// How long one waiting read waits at the server.
const WAIT_MS: u64 = 30_000;

/// Prints everything from `offset` to the end of the stream.
/// Without one it begins at the first byte that is still there.
pub fn all(stream: &Stream, offset: Option<u64>, leader: bool, json: bool) -> Result<()> {
    let from = offset.map_or(From::Start, |offset| From::At(Offset(offset)));
    let mut read = Read { from, bytes_max: None, leader, incarnation: None, wait_ms: None };
    loop {
        let (_, answer) = stream.read(&read);
        if let (From::Start, Some(retained)) = (read.from, gone_below(&answer)) {
            eprintln!("highwater: {}: the bytes before {} are gone; this begins there", stream.url(), retained.0);
            read.from = From::At(retained);
            continue;
        }
        let piece = done(stream, answer)?;
        print(&piece, json)?;
        if piece.up_to_date {
            return Ok(());
        }
        follow(&mut read, piece.next, piece.incarnation);
    }
}

/// Prints what comes, until the stream is closed.
pub fn tail(stream: &Stream, offset: Option<u64>, json: bool) -> Result<()> {
    let from = offset.map_or(From::Now, |offset| From::At(Offset(offset)));
    let mut read = Read { from, bytes_max: None, leader: false, incarnation: None, wait_ms: Some(WAIT_MS) };
    loop {
        let (_, answer) = stream.read(&read);
        if matches!(answer.outcome, Outcome::Unknown) {
            // A reader changes nothing, so it may try for ever; the stream's token tells whether it is still the same.
            eprintln!("highwater: {}: {}; trying again", stream.url(), answer.describe());
            std::thread::sleep(Duration::from_secs(1));
            continue;
        }
        let piece = done(stream, answer)?;
        print(&piece, json)?;
        if piece.closed {
            return Ok(());
        }
        follow(&mut read, piece.next, piece.incarnation);
    }
}

/// The first byte that is still there, if a read was refused because it began before it.
fn gone_below(answer: &Answer<Piece>) -> Option<Offset> {
    match &answer.outcome {
        Outcome::Refused(refusal) if refusal.status == 410 => refusal.next,
        _ => None,
    }
}

fn follow(read: &mut Read, next: Offset, incarnation: Incarnation) {
    read.from = From::At(next);
    read.incarnation = Some(incarnation);
}

/// What `--json` prints of a part. The messages are the texts that the stream holds: any other form of them would lose
/// digits, names and order, and cannot hold every number.
#[derive(Serialize)]
struct Part<'a> {
    offset: u64,
    next_offset: u64,
    bytes_hex: Option<String>,
    messages: Option<Vec<&'a RawValue>>,
}

/// Prints what a read found: the bytes of a stream as they are, or of a JSON stream a line for each message.
fn print(piece: &Piece, json: bool) -> Result<()> {
    if piece.body.is_empty() {
        return Ok(());
    }
    if is_json(&piece.content_type) {
        return print_messages(piece, json);
    }
    if json {
        let hex: String = piece.body.iter().map(|byte| format!("{byte:02x}")).collect();
        let start = piece.next.0.saturating_sub(piece.body.len() as u64);
        return output::json(&Part { offset: start, next_offset: piece.next.0, bytes_hex: Some(hex), messages: None });
    }
    let mut out = std::io::stdout().lock();
    out.write_all(&piece.body)?;
    out.flush()?;
    Ok(())
}

fn print_messages(piece: &Piece, json: bool) -> Result<()> {
    let messages: Vec<&RawValue> = serde_json::from_slice(&piece.body)
        .context("the server's answer is not the array of messages that it names")?;
    if messages.is_empty() {
        return Ok(());
    }
    if json {
        // In the stream each message has one byte behind it; in the array that is a comma or the end, and one begins it.
        let start = piece.next.0.saturating_sub(piece.body.len() as u64 - 1);
        let next_offset = piece.next.0;
        return output::json(&Part { offset: start, next_offset, bytes_hex: None, messages: Some(messages) });
    }
    let mut out = std::io::stdout().lock();
    for message in messages {
        writeln!(out, "{message}")?;
    }
    out.flush()?;
    Ok(())
}
