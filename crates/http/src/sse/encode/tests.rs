use super::*;
use proptest::prelude::*;

/// What a reader of event streams makes of these bytes: the types and the data of the events, read as the standard
/// has it.
fn parse(stream: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut events = Vec::new();
    let (mut kind, mut data): (String, Option<Vec<u8>>) = (String::new(), None);
    let mut rest = stream;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')).expect("every line ends");
        let line = &rest[..end];
        rest = if rest[end..].starts_with(b"\r\n") { &rest[end + 2..] } else { &rest[end + 1..] };
        if line.is_empty() {
            if let Some(data) = data.take() {
                events.push((std::mem::take(&mut kind), data));
            }
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':').expect("no comments here");
        let value = line[colon + 1..].strip_prefix(b" ").unwrap_or(&line[colon + 1..]);
        match &line[..colon] {
            b"event" => kind = String::from_utf8_lossy(value).into_owned(),
            b"data" => match &mut data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => data = Some(value.to_vec()),
            },
            other => panic!("{:?}", String::from_utf8_lossy(other)),
        }
    }
    assert_eq!(data, None, "every event ends");
    events
}

fn encode(form: Form, pieces: &[&[u8]], closes: bool) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new(form);
    pieces
        .iter()
        .enumerate()
        .map(|(at, piece)| {
            let mut out = Vec::new();
            encoder.data(piece, closes && at + 1 == pieces.len(), &mut out);
            out
        })
        .collect()
}

fn data(form: Form, pieces: &[&[u8]], closes: bool) -> Vec<u8> {
    let events = parse(&encode(form, pieces, closes).concat());
    assert!(events.iter().all(|(kind, data)| kind == "data" && !data.is_empty()), "{events:?}");
    events.into_iter().flat_map(|(_, data)| data).collect()
}

fn unified(text: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(text).replace("\r\n", "\n").replace('\r', "\n").into_bytes()
}

#[test]
fn forms_follow_content_types() {
    for (content_type, form) in [
        ("text/plain", Form::Text),
        ("text/html; charset=utf-8", Form::Text),
        ("application/json; charset=utf-8", Form::Json),
        ("application/jsonl", Form::Base64),
        ("application/octet-stream", Form::Base64),
        ("image/svg+xml", Form::Base64),
        ("textual", Form::Base64),
    ] {
        assert_eq!(Form::of(content_type), form, "{content_type}");
    }
}

#[test]
fn text_stands_in_lines_without_a_space_of_its_own() {
    for (text, event) in [
        ("line1", "event: data\ndata:line1\n\n"),
        ("a\nb\r\nc\rd", "event: data\ndata:a\ndata:b\ndata:c\ndata:d\n\n"),
        ("a\n", "event: data\ndata:a\ndata:\n\n"),
        ("\n", "event: data\ndata:\ndata:\n\n"),
        (" a\n  b", "event: data\ndata:  a\ndata:   b\n\n"),
        ("a\n\nevent: control\ndata:{}", "event: data\ndata:a\ndata:\ndata:event: control\ndata:data:{}\n\n"),
    ] {
        assert_eq!(String::from_utf8_lossy(&encode(Form::Text, &[text.as_bytes()], false)[0]), event, "{text:?}");
    }
}

#[test]
fn nothing_gives_no_event() {
    for form in [Form::Text, Form::Json, Form::Base64] {
        assert_eq!(encode(form, &[b""], false)[0], b"", "{form:?}");
        assert_eq!(encode(form, &[b""], true)[0], b"", "{form:?}");
    }
}

#[test]
fn json_stands_in_complete_arrays() {
    let events = encode(Form::Json, &[b"1\n{\"a\":\" \\r\\n\"}\n"], false);
    assert_eq!(String::from_utf8_lossy(&events[0]), "event: data\ndata:[1,{\"a\":\" \\r\\n\"}]\n\n");
}

#[test]
fn other_bytes_stand_in_padded_base64() {
    for (bytes, text) in [
        (&b"f"[..], "Zg=="),
        (b"fo", "Zm8="),
        (b"foo", "Zm9v"),
        (b"foob", "Zm9vYg=="),
        (b"foobar", "Zm9vYmFy"),
        (&[0xfb, 0xff, 0xfe], "+//+"),
        (&[0], "AA=="),
    ] {
        let events = encode(Form::Base64, &[bytes], false);
        assert_eq!(String::from_utf8_lossy(&events[0]), format!("event: data\ndata:{text}\n\n"));
    }
}

#[test]
fn a_character_is_never_cut_between_events() {
    let text = "a\u{e9}\u{20ac}\u{1f600}z";
    for at in 0..=text.len() {
        let (first, second) = text.as_bytes().split_at(at);
        for event in encode(Form::Text, &[first, second], false) {
            assert!(String::from_utf8(event).is_ok(), "cut at {at}");
        }
        assert_eq!(data(Form::Text, &[first, second], false), text.as_bytes(), "cut at {at}");
    }
    let mut encoder = Encoder::new(Form::Text);
    let mut out = Vec::new();
    encoder.data("a\u{20ac}".as_bytes().split_last().expect("bytes").1, false, &mut out);
    assert_eq!((out.as_slice(), encoder.held()), (&b"event: data\ndata:a\n\n"[..], 2));
}

#[test]
fn what_is_no_character_is_not_waited_for() {
    for bytes in [&b"a\xff"[..], b"a\x80\x80\x80\x80", b"a\xc3(", b"a\xf8", b"\xe2\x28"] {
        assert_eq!(data(Form::Text, &[bytes], false), bytes);
    }
    assert_eq!(data(Form::Text, &[b"a\xe2\x82"], true), b"a\xe2\x82", "no byte will follow");
    assert_eq!(data(Form::Text, &[b"a\xe2", b"", b"\x82"], true), b"a\xe2\x82");
}

/// Another server turned a CRLF of a text into two line ends.
#[test]
fn every_mix_of_line_ends_is_read_as_the_lines_it_means() {
    let alphabet: [&[u8]; 4] = [b"\r", b"\n", b"x", b" "];
    for code in 0..4usize.pow(6) {
        let text: Vec<u8> = (0..6).flat_map(|place| alphabet[code / 4usize.pow(place) % 4]).copied().collect();
        assert_eq!(data(Form::Text, &[&text], false), unified(&text), "{:?}", String::from_utf8_lossy(&text));
    }
}

#[test]
fn control_events_say_what_is_so_and_nothing_else() {
    for (cursor, up_to_date, closed, text) in [
        (Some(7), true, false, ",\"streamCursor\":\"7\",\"upToDate\":true"),
        (Some(7), false, false, ",\"streamCursor\":\"7\""),
        (None, true, true, ",\"upToDate\":true,\"streamClosed\":true"),
    ] {
        let mut out = Vec::new();
        control(Offset(42), cursor, up_to_date, closed, &mut out);
        let whole = format!("event: control\ndata:{{\"streamNextOffset\":\"00000000000000000042\"{text}}}\n\n");
        assert_eq!(String::from_utf8_lossy(&out), whole);
        let events = parse(&out);
        assert!(serde_json::from_slice::<serde_json::Value>(&events[0].1).is_ok());
    }
}

proptest! {
    /// Wherever a text is cut, also between CR and LF and inside a character, its reader gets its lines.
    #[test]
    fn cuts_change_nothing(text in "[a \\r\\n\u{e9}\u{20ac}\u{1f600}:]{0,40}", cuts in prop::collection::vec(0..160usize, 0..8)) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|at| at.min(text.len())).collect();
        cuts.push(0);
        cuts.push(text.len());
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
        prop_assert_eq!(data(Form::Text, &pieces, true), unified(text.as_bytes()));
    }

    #[test]
    fn any_bytes_as_text_keep_their_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60), at in 0..60usize) {
        let (first, second) = bytes.split_at(at.min(bytes.len()));
        let lines: Vec<u8> = data(Form::Text, &[first, second], true);
        let wanted: Vec<u8> = {
            let mut wanted = Vec::new();
            for (place, byte) in bytes.iter().enumerate() {
                match byte {
                    b'\r' => wanted.push(b'\n'),
                    b'\n' if place > 0 && bytes[place - 1] == b'\r' => {}
                    byte => wanted.push(*byte),
                }
            }
            wanted
        };
        prop_assert_eq!(lines, wanted);
    }
}
