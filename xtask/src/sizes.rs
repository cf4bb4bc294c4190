//! How long the files are.

use crate::process::root;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// Every Rust source file below `crates`, `bench` and `xtask`, with its number of lines.
pub fn source_files() -> Result<Vec<(PathBuf, usize)>> {
    let mut files = Vec::new();
    for folder in ["crates", "bench", "xtask"] {
        collect(&root().join(folder), &mut files)?;
    }
    files.sort();
    Ok(files)
}

fn collect(folder: &Path, files: &mut Vec<(PathBuf, usize)>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let lines = std::fs::read_to_string(&path)?.lines().count();
            files.push((path, lines));
        }
    }
    Ok(())
}

/// Prints the median, the 90th percentile and the ten longest.
pub fn report() -> Result<()> {
    let mut files = source_files()?;
    files.sort_by_key(|(_, lines)| *lines);
    let at = |share: usize| files.get(files.len() * share / 100).map_or(0, |(_, lines)| *lines);
    println!("{} files, median {} lines, 90th percentile {}", files.len(), at(50), at(90));
    for (path, lines) in files.iter().rev().take(10) {
        println!("{lines:6}  {}", path.strip_prefix(root())?.display());
    }
    Ok(())
}
