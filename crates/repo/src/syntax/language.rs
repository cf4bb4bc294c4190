//! Tags of languages.
//!
//! Source: RFC 5646 (BCP 47), sections 2.1 and 2.2.9.

use std::collections::BTreeSet;

/// Tags that were registered before the rules, and follow none.
const IRREGULAR: [&str; 17] = [
    "en-GB-oed",
    "i-ami",
    "i-bnn",
    "i-default",
    "i-enochian",
    "i-hak",
    "i-klingon",
    "i-lux",
    "i-mingo",
    "i-navajo",
    "i-pwn",
    "i-tao",
    "i-tay",
    "i-tsu",
    "sgn-BE-FR",
    "sgn-BE-NL",
    "sgn-CH-DE",
];

/// What follows the language, in the order in which it may.
#[derive(Default)]
struct Tag<'a> {
    variants: Vec<&'a str>,
    singletons: Vec<&'a str>,
}

fn alphabetic(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

fn is_private(tags: &[&str]) -> bool {
    matches!(tags, [first, rest @ ..] if first.eq_ignore_ascii_case("x") && !rest.is_empty())
}

fn is_region(tag: &str) -> bool {
    tag.len() == 2 && alphabetic(tag) || tag.len() == 3 && tag.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_variant(tag: &str) -> bool {
    (5..=8).contains(&tag.len()) || tag.len() == 4 && tag.as_bytes()[0].is_ascii_digit()
}

/// Takes tags off the front as long as they are of a kind.
fn skip<'a, 'b>(tags: &'b [&'a str], count_max: usize, is: impl Fn(&str) -> bool) -> &'b [&'a str] {
    let count = tags.iter().take(count_max).take_while(|tag| is(tag)).count();
    &tags[count..]
}

fn parse(text: &str) -> Option<Tag<'_>> {
    if IRREGULAR.contains(&text) {
        return Some(Tag::default());
    }
    let tags: Vec<&str> = text.split('-').collect();
    let sound = |tag: &&str| (1..=8).contains(&tag.len()) && tag.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !tags.iter().all(sound) {
        return None;
    }
    if is_private(&tags) {
        return Some(Tag::default());
    }
    let (language, rest) = tags.split_first()?;
    if !matches!(language.len(), 2 | 3 | 5..=8) || !language.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return None;
    }
    let extended = if language.len() <= 3 { 3 } else { 0 };
    let rest = skip(rest, extended, |tag| tag.len() == 3 && alphabetic(tag));
    let rest = skip(rest, 1, |tag| tag.len() == 4 && alphabetic(tag));
    let rest = skip(rest, 1, is_region);
    let after = skip(rest, usize::MAX, is_variant);
    let mut tag = Tag { variants: rest[..rest.len() - after.len()].to_vec(), singletons: Vec::new() };
    let mut rest = after;
    while let [singleton, following @ ..] = rest {
        if is_private(rest) {
            return Some(tag);
        }
        let behind = skip(following, usize::MAX, |tag| tag.len() >= 2);
        if singleton.len() != 1 || behind.len() == following.len() {
            return None;
        }
        tag.singletons.push(singleton);
        rest = behind;
    }
    Some(tag)
}

/// Whether text is written like a language's tag.
#[must_use]
pub fn is_language_text(text: &str) -> bool {
    parse(text).is_some()
}

/// Whether it is one moreover that says nothing twice.
#[must_use]
pub fn is_language(text: &str) -> bool {
    let once = |tags: &[&str]| {
        let distinct: BTreeSet<String> = tags.iter().map(|tag| tag.to_ascii_lowercase()).collect();
        distinct.len() == tags.len()
    };
    parse(text).is_some_and(|tag| once(&tag.variants) && once(&tag.singletons))
}
