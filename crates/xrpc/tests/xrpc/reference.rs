//! The reference page, made from the tables.

use highwater_xrpc::{error, methods};
use std::fmt::Write;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/xrpc.md");

fn page() -> String {
    let mut page = String::from(
        "# XRPC methods\n\n\
         <!-- Made from the tables in crates/xrpc/src/methods.rs and error.rs; HIGHWATER_WRITE_DOCS=1 cargo test -p highwater-xrpc \
         writes it. -->\n\n\
         The methods of the AT Protocol that a server of accounts serves, below `/xrpc/`. What departs from the protocol's text or is \
         left out stands in [Conformance](pds-conformance.md).\n\n\
         | Method | Called with | By whom | What it does |\n| --- | --- | --- | --- |\n",
    );
    for method in methods::METHODS {
        let verb = match method.verb {
            methods::Verb::Query => "GET",
            methods::Verb::Procedure => "POST",
            methods::Verb::Subscription => "GET, WebSocket",
        };
        writeln!(page, "| `{}` | {verb} | {} | {} |", method.nsid, method.who, method.about).expect("a string");
    }
    page.push_str(
        "\nBeside them: `/.well-known/did.json` and `/.well-known/atproto-did`, answered by the host that is asked, and `/robots.txt`.\n",
    );
    page.push_str(
        "\n## Left out\n\nMethods of the protocol's servers that are not here.\n\n| Method | Why |\n| --- | --- |\n",
    );
    for (nsid, why) in methods::LEFT_OUT {
        writeln!(page, "| `{nsid}` | {why} |").expect("a string");
    }
    page.push_str(
        "\n## Errors\n\n\
         Every refusal has this body:\n\n\
         ```json\n{\"error\":\"RepoNotFound\",\"message\":\"there is no such repository here\"}\n```\n\n\
         Programs match `error` alone. The message is for people and changes freely.\n\n\
         | Name | Status | When |\n| --- | --- | --- |\n",
    );
    for row in error::TABLE {
        writeln!(page, "| `{}` | {} | {} |", row.name, row.status, row.when).expect("a string");
    }
    page.push_str(
        "\n### Before a method is asked\n\n\
         The server that carries the methods refuses some requests by itself, with a body of the same form:\n\n\
         | Name | Status | When |\n| --- | --- | --- |\n\
         | `Forbidden` | 403 | In open mode a page of another origin asks. |\n\
         | `NotFound` | 404 | The server has no accounts, or this listener does not serve them. |\n\
         | `MisdirectedRequest` | 421 | The request names another host than this listener answers. |\n\
         | `RequestHeadersTooLarge` | 431 | The request's head has more than 100 fields or 64 KiB. Over HTTP/1.1 this answer has no body. |\n\
         | `PdsUnavailable` | 503 | The accounts are not served: their directory could not be opened. The message says why. |\n",
    );
    page.push_str(
        "\n## Frames that end a stream\n\n\
         | Name | When |\n| --- | --- |\n\
         | `FutureCursor` | The cursor lies above every number that was handed out. If the server's data was restored from a copy, its operator has to say so with `highwater pds mark-restored`. |\n\
         | `ConsumerTooSlow` | More than 4,096 new frames wait for the subscriber. It comes back with its cursor; a replay never counts. |\n\
         \nAn `#info` frame `OutdatedCursor` ends nothing: it says that frames behind the cursor are not kept any more.\n",
    );
    page
}

#[test]
fn the_reference_page_is_made_from_the_tables() {
    if std::env::var_os("HIGHWATER_WRITE_DOCS").is_some() {
        std::fs::write(PAGE, page()).expect("the page is written");
    }
    let written = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        written == page(),
        "docs/reference/xrpc.md is old; HIGHWATER_WRITE_DOCS=1 cargo test -p highwater-xrpc writes it"
    );
}

#[test]
fn every_method_stands_once_and_its_row_is_whole() {
    let mut names: Vec<&str> = methods::METHODS.iter().map(|method| method.nsid).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), methods::METHODS.len());
    for method in methods::METHODS {
        assert!(
            method.about.ends_with('.') && !method.about.contains('|') && !method.who.is_empty(),
            "{}",
            method.nsid
        );
    }
}
