//! The model files that are carried inside, and which of several files are for a machine.

use include_dir::{Dir, include_dir};

use super::swaps::SwapFile;
use super::{Model, ModelFile, Models, Pair, Target};
use crate::machine::CoreType;

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../models");

/// Every shipped model, by path.
#[must_use]
pub fn shipped() -> Vec<(String, ModelFile)> {
    let mut all: Vec<_> = FILES.dirs().flat_map(parsed).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// The shipped models of a core type, whatever machine they are for.
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

/// Every shipped file of rules for exchanges, by path.
pub(super) fn swaps() -> Vec<SwapFile> {
    let parse = |f: &include_dir::File<'_>| {
        let path = format!("models/{}", f.path().display());
        let parsed = SwapFile::parse(&path, f.contents_utf8()?);
        debug_assert!(parsed.is_ok(), "{parsed:?}");
        parsed.ok()
    };
    let is_swaps = |f: &&include_dir::File<'_>| f.path().to_string_lossy().ends_with(".swaps.toml");
    FILES.files().filter(is_swaps).filter_map(parse).collect()
}

/// The models for each of a machine's core types, fastest first, out of what `files` gives for a core type: those trained for this
/// machine, else for the same core types at the same ratio of frequencies; of several, the last.
#[must_use]
pub fn for_machine(
    machine: &str,
    core_types: &[CoreType],
    files: impl Fn(&str) -> Vec<ModelFile>,
) -> Vec<Models> {
    let Some(pair) = Pair::of(core_types) else {
        return vec![Models::default(); core_types.len()];
    };
    let of = |core_type: &CoreType| {
        let files = files(&core_type.name);
        let find = |target: Target| {
            let of_type = |f: &&ModelFile| f.target == target && f.core_type == core_type.name;
            let fitting = files.iter().filter(of_type).filter(|f| f.fits(&pair));
            fitting.max_by_key(|f| f.machine == machine).map(Model::new)
        };
        Models {
            sf: find(Target::Sf),
            ef: find(Target::Ef),
        }
    };
    core_types.iter().map(of).collect()
}
