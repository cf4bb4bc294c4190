use super::*;
use proptest::prelude::*;

fn refused(query: &str) -> Code {
    parse(query).expect_err(query).code()
}

#[test]
fn an_offset_is_a_number_the_start_or_now() {
    for (query, from) in [
        ("", ReadFrom::Start),
        ("offset=-1", ReadFrom::Start),
        ("offset=%2D1", ReadFrom::Start),
        ("offset=now", ReadFrom::Now),
        ("offset=0", ReadFrom::At(Offset(0))),
        ("offset=00000000000000000042", ReadFrom::At(Offset(42))),
        ("offset=18446744073709551615", ReadFrom::At(Offset(u64::MAX))),
    ] {
        assert_eq!(parse(query).map(|query| query.from).ok(), Some(from), "{query:?}");
    }
}

#[test]
fn an_offset_that_is_anything_else_is_refused() {
    for value in [
        "",
        "%20",
        "%201",
        "1%20",
        "+1",
        "-2",
        "Now",
        "NOW",
        "abc",
        "1,2",
        "1/2",
        "..",
        "%00",
        "1%0D%0A",
        "1%00",
        "1.5",
        "0x1",
        "0000000000000000_0000000000000000",
        "18446744073709551616",
        "000000000000000000001",
        "%zz",
        "%",
        "%ff",
        "1=1",
    ] {
        assert_eq!(refused(&format!("offset={value}")), Code::InvalidOffset, "{value:?}");
    }
    assert_eq!(refused("offset=1&offset=1"), Code::InvalidOffset);
    assert_eq!(refused("offset"), Code::InvalidOffset);
    assert_eq!(refused("offset=1&%6Fffset=1"), Code::InvalidOffset);
}

#[test]
fn unknown_parameters_are_ignored_whatever_they_hold() {
    let plain = parse("offset=5").ok();
    for query in
        ["offset=5&x=1&x=2", "%zz=1&offset=5", "a&b&&offset=5&", "offset=5&Offset=7", "offset=5&=", "offset=5&y=%zz"]
    {
        assert_eq!(parse(query).ok(), plain, "{query:?}");
    }
}

#[test]
fn limits_are_clamped_and_their_syntax_is_strict() {
    assert_eq!(parse("").map(|query| query.bytes_max).ok(), Some(READ_BYTES_MAX));
    assert_eq!(parse("max_bytes=1").map(|query| query.bytes_max).ok(), Some(1));
    assert_eq!(parse("max_bytes=99999999999999999999").map(|query| query.bytes_max).ok(), Some(READ_BYTES_MAX));
    let live = |query: &str| parse(query).map(|query| query.live).ok();
    assert_eq!(live("offset=0&live=long-poll"), Some(Live::LongPoll { wait_ms: 1_000 }));
    assert_eq!(live("offset=0&live=long-poll&timeout_ms=0"), Some(Live::LongPoll { wait_ms: 1 }));
    assert_eq!(live("offset=0&live=long-poll&timeout_ms=86400000"), Some(Live::LongPoll { wait_ms: 60_000 }));
    assert_eq!(live("offset=0&timeout_ms=5"), Some(Live::No));
    assert_eq!(live("offset=now&live=sse&timeout_ms=5"), Some(Live::Sse), "its life is the server's to choose");
    for query in
        ["max_bytes=0", "max_bytes=", "max_bytes=-1", "max_bytes=01", "max_bytes=1&max_bytes=1", "timeout_ms=x"]
    {
        assert_eq!(refused(query), Code::InvalidQuery, "{query:?}");
    }
}

#[test]
fn live_reads_need_an_offset_and_no_confirmation() {
    for live in ["long-poll", "sse"] {
        assert_eq!(refused(&format!("live={live}")), Code::InvalidQuery);
        assert_eq!(refused(&format!("offset=0&live={live}&consistency=leader")), Code::InvalidQuery);
    }
    assert!(parse("offset=0&live=long-poll&consistency=local").is_ok());
    assert_eq!(parse("consistency=leader").map(|query| query.leader).ok(), Some(true));
    for query in ["offset=0&live=", "offset=0&live=SSE", "offset=0&live=long-poll&live=sse", "consistency=strong"] {
        assert_eq!(refused(query), Code::InvalidQuery, "{query:?}");
    }
}

#[test]
fn a_cursor_that_is_not_ours_is_none() {
    assert_eq!(parse("cursor=7").map(|query| query.cursor).ok(), Some(Some(7)));
    for query in ["cursor=", "cursor=x", "cursor=9007199254740992", "cursor=1&cursor=1", "cursor=%zz"] {
        assert_eq!(parse(query).map(|query| query.cursor).ok(), Some(None), "{query:?}");
    }
}

proptest! {
    #[test]
    fn no_query_makes_the_parser_panic(query in "[a-z0-9=&%_+.-]{0,60}", raw in any::<String>()) {
        for query in [query.as_str(), raw.as_str(), &format!("offset={raw}"), &format!("offset=0&live=long-poll&timeout_ms={raw}")] {
            if let Err(error) = parse(query) {
                let code = error.code();
                prop_assert!(matches!(code, Code::InvalidOffset | Code::InvalidQuery), "{query:?}: {code:?}");
            }
        }
    }

    #[test]
    fn every_offset_that_is_minted_reads_back(offset in any::<u64>()) {
        let query = format!("offset={}", Offset(offset));
        prop_assert_eq!(parse(&query).map(|query| query.from).ok(), Some(ReadFrom::At(Offset(offset))));
    }
}
