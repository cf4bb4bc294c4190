//! The files of `transcripts/`: requests and the answers they got, read as documentation.
//!
//! With `HIGHWATER_REGENERATE=1` in the environment they are written anew from what the machine answers.

use crate::script::Session;
use std::fs;
use std::path::Path;

/// A transcript with the answers that the machine gives now.
fn replay(transcript: &str) -> String {
    let mut session = Session::new();
    let mut text = String::new();
    for line in transcript.lines().filter(|line| !line.starts_with("> ")) {
        text.push_str(line);
        text.push('\n');
        let speaks = !line.trim().is_empty() && !line.starts_with('#');
        if let Some(answer) = speaks.then(|| session.line(line)).flatten() {
            text.push_str("> ");
            text.push_str(&answer);
            text.push('\n');
        }
    }
    text
}

#[test]
fn every_transcript_is_what_the_machine_answers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts");
    let regenerate = std::env::var_os("HIGHWATER_REGENERATE").is_some();
    let mut files: Vec<_> = fs::read_dir(folder).expect("the folder is there").flatten().map(|f| f.path()).collect();
    files.sort();
    assert!(files.len() >= 10, "transcripts are missing: {}", files.len());
    for file in files {
        let written = fs::read_to_string(&file).expect("a transcript is text");
        let answered = replay(&written);
        if regenerate {
            fs::write(&file, &answered).expect("the transcript can be written");
        }
        assert!(regenerate || answered == written, "{} differs:\n{answered}", file.display());
    }
}
