//! What kind of file bytes are, as their first ones say.

/// Bytes from the start that are looked at.
pub const HEAD_BYTES: usize = 64;

/// The type of bytes of which nothing is known.
const UNKNOWN: &str = "application/octet-stream";

/// A mark of a type: at an offset, bytes.
type Mark = (usize, &'static [u8]);

/// Types by their marks; all of a row's marks must be there, and the first row that fits says the type.
const TYPES: &[(&[Mark], &str)] = &[
    (&[(0, b"\x89PNG\r\n\x1a\n")], "image/png"),
    (&[(0, b"\xff\xd8\xff")], "image/jpeg"),
    (&[(0, b"GIF87a")], "image/gif"),
    (&[(0, b"GIF89a")], "image/gif"),
    (&[(0, b"RIFF"), (8, b"WEBP")], "image/webp"),
    (&[(4, b"ftypavif")], "image/avif"),
    (&[(4, b"ftypavis")], "image/avif"),
    (&[(4, b"ftypheic")], "image/heic"),
    (&[(4, b"ftypheix")], "image/heic"),
    (&[(4, b"ftypmif1")], "image/heif"),
    (&[(0, b"BM"), (6, b"\0\0\0\0")], "image/bmp"),
    (&[(0, b"II*\0")], "image/tiff"),
    (&[(0, b"MM\0*")], "image/tiff"),
    (&[(0, b"\0\0\x01\0")], "image/x-icon"),
    (&[(4, b"ftypqt  ")], "video/quicktime"),
    (&[(4, b"ftypM4A ")], "audio/mp4"),
    (&[(4, b"ftyp")], "video/mp4"),
    (&[(0, b"\x1aE\xdf\xa3")], "video/webm"),
    (&[(0, b"RIFF"), (8, b"AVI ")], "video/x-msvideo"),
    (&[(0, b"\0\0\x01\xba")], "video/mpeg"),
    (&[(0, b"RIFF"), (8, b"WAVE")], "audio/wav"),
    (&[(0, b"OggS")], "audio/ogg"),
    (&[(0, b"fLaC")], "audio/flac"),
    (&[(0, b"ID3")], "audio/mpeg"),
    (&[(0, b"\xff\xfb")], "audio/mpeg"),
    (&[(0, b"%PDF-")], "application/pdf"),
    (&[(0, b"PK\x03\x04")], "application/zip"),
    (&[(0, b"\x1f\x8b\x08")], "application/gzip"),
    (&[(0, b"wOF2")], "font/woff2"),
    (&[(0, b"WEBVTT")], "text/vtt"),
];

/// The media type of a blob that begins with these bytes, of which its sender said that it is of another type.
///
/// Bytes that carry the mark of a type are of that type whatever is said. Types without a mark, such as text, are what is said. What
/// is said to be of a type that has a mark, and does not carry it, is of no known type.
#[must_use]
pub fn media_type(head: &[u8], said: Option<&str>) -> String {
    let carries = |(at, mark): &Mark| head.get(*at..).is_some_and(|rest| rest.starts_with(mark));
    if let Some((_, kind)) = TYPES.iter().find(|(marks, _)| marks.iter().all(carries)) {
        return (*kind).to_owned();
    }
    let said = said.and_then(normal).filter(|said| TYPES.iter().all(|(_, kind)| kind != said));
    said.unwrap_or_else(|| UNKNOWN.to_owned())
}

/// A media type without its parameters and in lower case, if it is one.
fn normal(said: &str) -> Option<String> {
    let said = said.split(';').next()?.trim().to_ascii_lowercase();
    let (kind, rest) = said.split_once('/')?;
    let plain = |part: &str| {
        let symbols = b"!#$&-^_.+";
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || symbols.contains(&byte);
        (1..=127).contains(&part.len()) && part.bytes().all(fits)
    };
    (plain(kind) && plain(rest)).then_some(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_say_what_they_are_whatever_is_said_of_them() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
        for said in [None, Some("text/html"), Some("image/jpeg"), Some("image/png; charset=utf-8")] {
            assert_eq!(media_type(png, said), "image/png");
        }
        assert_eq!(media_type(b"RIFF\x24\0\0\0WEBPVP8 ", None), "image/webp");
        assert_eq!(media_type(b"\0\0\0\x1cftypisom\0\0\x02\0", Some("image/png")), "video/mp4");
        assert_eq!(media_type(b"\0\0\0\x1cftypavif\0\0\0\0", None), "image/avif");
    }

    #[test]
    fn text_is_what_is_said_and_a_picture_without_its_mark_is_nothing_known() {
        assert_eq!(media_type(b"hello", Some("Text/Plain; charset=utf-8")), "text/plain");
        assert_eq!(media_type(b"<svg/>", Some("image/svg+xml")), "image/svg+xml");
        for said in ["image/png", "*/*", "", "text", "text/", "text/a b", "text/plain\r\nx: y", "/"] {
            assert_eq!(media_type(b"hello", Some(said)), UNKNOWN, "{said:?}");
        }
        assert_eq!(media_type(b"", None), UNKNOWN);
    }

    #[test]
    fn every_mark_lies_within_the_bytes_that_are_looked_at() {
        for (marks, kind) in TYPES {
            assert!(marks.iter().all(|(at, mark)| at + mark.len() <= HEAD_BYTES), "{kind}");
        }
    }
}
