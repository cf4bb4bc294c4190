//! The project's automation: the demonstration, the gate, and what keeps the tree tidy.
//!
//! `cargo xtask demo` runs the main job on real input; `cargo xtask test` is the gate, the same one that CI calls;
//! `cargo xtask suite` and `cargo xtask clients` run the two steps of it that are software of others; `cargo xtask fix`
//! writes what the gate would complain of; `cargo xtask sizes` lists the longest files.

mod gate;
mod interop;
mod process;
mod sizes;
#[cfg(test)]
mod tidy;

use anyhow::{Result, bail};

const USAGE: &str = "\
usage: cargo xtask <command>

  demo    a Django project's database is replicated, lost and restored
  test    the gate: format, lints, tests, end to end, published suite and clients, docs, benchmarks
  suite   the published conformance suite; a pattern selects tests by name, --prune takes passing ones off the list
  clients the programs on published clients, all or those whose names contain a word
  fix     format and apply the lints' suggestions
  sizes   the longest source files (a report, never a failure)
";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["demo", rest @ ..] => process::demo(rest),
        ["test", rest @ ..] => gate::test(rest),
        ["suite", rest @ ..] => interop::suite(rest),
        ["clients", rest @ ..] => interop::clients(rest),
        ["fix"] => gate::fix(),
        ["sizes"] => sizes::report(),
        _ => bail!("{USAGE}"),
    }
}
