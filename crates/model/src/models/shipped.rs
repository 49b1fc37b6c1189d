//! Model files that are embedded in the program.

use include_dir::{Dir, include_dir};

use super::ModelFile;
use super::swaps::SwapFile;

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../models");

/// Returns every shipped model with its path, sorted by path.
#[must_use]
pub fn shipped() -> Vec<(String, ModelFile)> {
    let mut all: Vec<_> = FILES.dirs().flat_map(parsed).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// Returns the shipped models of a core type for all machines.
#[must_use]
pub fn shipped_for(core_type: &str) -> Vec<ModelFile> {
    let dir = FILES.get_dir(core_type).into_iter();
    dir.flat_map(parsed).map(|(_, file)| file).collect()
}

fn parsed(dir: &Dir<'_>) -> Vec<(String, ModelFile)> {
    let parse = |f: &include_dir::File<'_>| {
        let path = format!("models/{}", f.path().display());
        let parsed = ModelFile::parse(&path, f.contents_utf8()?);
        debug_assert!(parsed.is_ok(), "{parsed:?}");
        Some((path, parsed.ok()?))
    };
    dir.files().filter_map(parse).collect()
}

/// Returns every shipped file of exchange rules.
#[must_use]
pub fn shipped_swaps() -> Vec<SwapFile> {
    let parse = |f: &include_dir::File<'_>| {
        let path = format!("models/{}", f.path().display());
        let parsed = SwapFile::parse(&path, f.contents_utf8()?);
        debug_assert!(parsed.is_ok(), "{parsed:?}");
        parsed.ok()
    };
    let is_swaps = |f: &&include_dir::File<'_>| f.path().to_string_lossy().ends_with(".swaps.toml");
    FILES.files().filter(is_swaps).filter_map(parse).collect()
}
