//! Recorder engines: QEMU's user emulation, and the plugin that it loads.
//!
//! Input: the environment, the folders of this program and of the user's cache, PATH. Output: existing files, or a
//! [`ProfileError`] that says how to get them. `scripts/recorder-engine.sh` builds QEMU. Many distributions' builds do not
//! support plugins; QEMU's help output shows it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::ProfileError;
use super::program::Architecture;
use crate::this_program;

/// Environment variable that names QEMU.
const QEMU_VARIABLE: &str = "COUNTERSTEER_QEMU";
/// Environment variable that names the plugin.
const PLUGIN_VARIABLE: &str = "COUNTERSTEER_PLUGIN";
const PLUGIN: &str = "libcountersteer_capture.so";
/// Dynamic linker in the folder of an engine that brings its own C library, as `make release` packs it.
const LINKER: &str = "libc/ld.so";
/// Folder of engines that were built on this machine, below the user's cache.
const BUILT: &str = "countersteer/recorder";

/// Origin of an engine, in order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Environment,
    /// Part of this program's package.
    Package,
    /// Built on this machine.
    Cache,
    /// Installed by the distribution.
    Path,
}

impl Origin {
    /// Returns a description for messages.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Environment => "named in COUNTERSTEER_QEMU",
            Self::Package => "of this package",
            Self::Cache => "built by scripts/recorder-engine.sh",
            Self::Path => "of this system",
        }
    }
}

/// User emulation of QEMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emulator {
    pub file: PathBuf,
    pub origin: Origin,
}

/// Returns all engines of this machine for programs of an architecture, in order of preference.
#[must_use]
pub fn engines(architecture: Architecture) -> Vec<Emulator> {
    search(architecture).engines
}

/// Engines of this machine, and an engine that could not be asked whether it takes plugins.
#[derive(Default)]
struct Search {
    engines: Vec<Emulator>,
    failed: Option<(PathBuf, io::Error)>,
}

fn search(architecture: Architecture) -> Search {
    let path = std::env::var_os("PATH").unwrap_or_default();
    found(
        &format!("qemu-{}", architecture.name()),
        std::env::var_os(QEMU_VARIABLE).map(PathBuf::from),
        &own_folders(),
        this_program::cache_folder(),
        &path,
    )
}

/// Returns the engine that is used for programs of an architecture.
pub fn engine(architecture: Architecture) -> Result<Emulator, ProfileError> {
    let named = std::env::var_os(QEMU_VARIABLE).map(PathBuf::from);
    if let Some(file) = named.filter(|file| !file.is_file()) {
        let variable = QEMU_VARIABLE;
        return Err(ProfileError::NotThere { variable, file });
    }
    let search = search(architecture);
    let none = || match search.failed {
        Some((qemu, source)) => ProfileError::Launch { qemu, source },
        None => ProfileError::NoQemu {
            architecture: architecture.name(),
        },
    };
    search.engines.into_iter().next().ok_or_else(none)
}

fn found(
    name: &str,
    named: Option<PathBuf>,
    own: &[PathBuf],
    cache: Option<PathBuf>,
    path: &OsStr,
) -> Search {
    let with = |origin| move |file| Emulator { file, origin };
    let own = own.iter().map(|folder| folder.join(name));
    let built = cache.map(|cache| cache.join(BUILT).join(name));
    let system = std::env::split_paths(path).map(|folder| folder.join(name));
    let all = named
        .map(with(Origin::Environment))
        .into_iter()
        .chain(own.map(with(Origin::Package)))
        .chain(built.map(with(Origin::Cache)))
        .chain(system.map(with(Origin::Path)));
    let mut found = Search::default();
    for engine in all.filter(|engine| engine.file.is_file()) {
        // Folders in PATH may be links to each other.
        let same =
            |other: &Emulator| other.file.canonicalize().ok() == engine.file.canonicalize().ok();
        let takes = match engine.origin {
            Origin::Path => takes_plugins(&engine.file),
            _ => Ok(true),
        };
        match takes {
            Ok(true) if !found.engines.iter().any(same) => found.engines.push(engine),
            Ok(_) => {}
            Err(why) => found.failed = Some((engine.file, why)),
        }
    }
    found
}

/// Returns the words that start a QEMU. If a C library lies beside it, the dynamic linker of this library starts it: the system may have
/// an older library, or none.
#[must_use]
pub fn start(qemu: &Path) -> Vec<OsString> {
    let linker = qemu.parent().map(|folder| folder.join(LINKER));
    match linker.filter(|linker| linker.is_file()) {
        Some(linker) => {
            let folder = linker.parent().unwrap_or(&linker).to_owned();
            vec![
                linker.into(),
                "--library-path".into(),
                folder.into(),
                qemu.into(),
            ]
        }
        None => vec![qemu.into()],
    }
}

/// True if a QEMU supports the option that loads plugins.
fn takes_plugins(qemu: &Path) -> io::Result<bool> {
    let help = Command::new(qemu)
        .arg("-h")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()?;
    let mut lines = help.stdout.split(|byte| *byte == b'\n');
    Ok(lines.any(|line| line.starts_with(b"-plugin")))
}

/// Returns the folders of this program's files.
fn own_folders() -> Vec<PathBuf> {
    let own = this_program::folder().into_iter();
    own.flat_map(|own| [own.clone(), own.join("../lib/countersteer")])
        .collect()
}

/// Finds the plugin: named in the environment, next to the running program, or in the folder that packages use.
pub fn plugin() -> Result<PathBuf, ProfileError> {
    let candidates: Vec<PathBuf> = if let Some(named) = std::env::var_os(PLUGIN_VARIABLE) {
        vec![named.into()]
    } else {
        // Examples and tests are one folder below the build's output folder.
        let above = this_program::folder().map(|own| own.join(".."));
        let folders = own_folders().into_iter().chain(above);
        folders.map(|folder| folder.join(PLUGIN)).collect()
    };
    match candidates.iter().find(|c| c.is_file()) {
        Some(found) => Ok(found.canonicalize().unwrap_or_else(|_| found.clone())),
        None => {
            let searched: Vec<String> =
                candidates.iter().map(|c| c.display().to_string()).collect();
            Err(ProfileError::NoPlugin {
                searched: searched.join(", "),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const QEMU: &str = "qemu-x86_64";

    fn put(file: &Path, help: &str) {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, format!("#!/bin/sh\necho 'usage:\n{help}'\n")).unwrap();
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn engines_are_found_in_order_and_systems_only_if_they_take_plugins() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let named = root.join("named");
        let (own, cache) = (root.join("own"), root.join("cache"));
        let (with, without) = (root.join("with"), root.join("without"));
        put(&named, "");
        let link = root.join("link");
        std::os::unix::fs::symlink(&with, &link).unwrap();
        put(&own.join(QEMU), "");
        put(&cache.join(BUILT).join(QEMU), "");
        put(&with.join(QEMU), "-plugin  QEMU_PLUGIN");
        put(&without.join(QEMU), "-strace  no -plugin here");
        let path = std::env::join_paths([&without, &with, &link]).unwrap();
        let origins = |named, own: &[PathBuf], cache| -> Vec<Origin> {
            let found = found(QEMU, named, own, cache, &path);
            found.engines.iter().map(|engine| engine.origin).collect()
        };
        use Origin::{Cache, Environment, Package, Path};
        let all = origins(Some(named), &[own], Some(cache));
        assert_eq!(all, [Environment, Package, Cache, Path]);
        let gone = origins(None, &[root.join("nowhere")], Some(root.to_owned()));
        assert_eq!(gone, [Path]);
        let last = found(QEMU, None, &[], None, &path).engines;
        assert_eq!(last[0].file, with.join(QEMU));
    }

    #[test]
    fn an_engine_that_does_not_start_is_not_one_without_plugins() {
        let root = tempfile::tempdir().unwrap();
        let qemu = root.path().join(QEMU);
        let search = || found(QEMU, None, &[], None, root.path().as_os_str());
        put(&qemu, "-strace");
        assert!(search().failed.is_none() && search().engines.is_empty());
        std::fs::set_permissions(&qemu, std::fs::Permissions::from_mode(0o644)).unwrap();
        let (file, why) = search().failed.unwrap();
        assert_eq!((file, why.kind()), (qemu, io::ErrorKind::PermissionDenied));
        assert!(search().engines.is_empty());
    }

    #[test]
    fn an_engine_is_started_by_the_linker_beside_it() {
        let root = tempfile::tempdir().unwrap();
        let (qemu, linker) = (root.path().join(QEMU), root.path().join(LINKER));
        put(&qemu, "");
        assert_eq!(start(&qemu), [qemu.as_os_str()]);
        put(&linker, "");
        let library = linker.parent().unwrap();
        let path = OsStr::new("--library-path");
        let words = [
            linker.as_os_str(),
            path,
            library.as_os_str(),
            qemu.as_os_str(),
        ];
        assert_eq!(start(&qemu), words);
    }
}
