//! Signatures of running programs, for policies.
//!
//! Input: a process. Output: the signature inside its binary, or in a side file. A binary is read once, and again after it or
//! the side files have changed. A damaged signature counts as none.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use countersteer_cache::signature::{SignatureError, store};
use countersteer_model::signature::Signature;
use countersteer_sysfs::procfs::PROC;
use rustc_hash::FxHashMap;

/// Limit on the number of cached signatures. If it is reached, all are dropped.
const MOST: usize = 4096;

/// Identity of a version of a binary, by which its signature is cached.
#[derive(PartialEq, Eq, Hash)]
struct Version {
    device: u64,
    inode: u64,
    changed: (i64, i64),
    side_files_changed: Option<(i64, i64)>,
}

/// Signature of a program, and those of its phases.
#[derive(Clone)]
struct ProgramSignatures {
    whole: Signature,
    phases: Arc<[Signature]>,
}

/// Cache of signatures by version of the binary; `None` for a binary without one.
pub struct Signatures {
    found: FxHashMap<Version, Option<ProgramSignatures>>,
    say: fn(&str),
}

impl Signatures {
    /// Creates an empty cache. `say` receives a notice of each damaged signature.
    pub fn new(say: fn(&str)) -> Self {
        Self {
            found: FxHashMap::default(),
            say,
        }
    }

    /// Returns the signature of the program that a process currently executes; `None` if it has none.
    pub fn of_process(&mut self, pid: u32) -> Option<Signature> {
        Some(self.known(pid)?.whole)
    }

    /// Returns the signatures of the phases of the program that a process currently executes; empty if it carries none.
    pub(crate) fn phases_of_process(&mut self, pid: u32) -> Vec<Signature> {
        self.known(pid).map_or(Vec::new(), |k| k.phases.to_vec())
    }

    fn known(&mut self, pid: u32) -> Option<ProgramSignatures> {
        let file = PROC.executable_metadata(pid)?;
        let version = Version {
            device: file.dev(),
            inode: file.ino(),
            changed: (file.ctime(), file.ctime_nsec()),
            side_files_changed: store::last_change(),
        };
        if let Some(known) = self.found.get(&version) {
            return known.clone();
        }
        if self.found.len() >= MOST {
            self.found.clear();
        }
        let found = store::of_binary(&PROC.executable_link(pid)).unwrap_or_else(|error| {
            if let SignatureError::Foreign { .. } | SignatureError::Elf { .. } = error {
                (self.say)(&format!(
                    "{error}; it counts as a program without a signature"
                ));
            }
            None
        });
        let known = found.map(|(carried, _)| ProgramSignatures {
            whole: carried.signature(),
            phases: (carried.phases.iter())
                .map(|phase| Signature::of_counts(phase.misses))
                .collect(),
        });
        self.found.insert(version, known.clone());
        known
    }
}

#[cfg(test)]
mod tests {
    use countersteer_cache::signature::{Carried, SCHEMA, SignaturePhase, elf};

    use super::*;

    #[test]
    fn a_process_has_the_signature_of_what_it_executes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sleeper");
        let carried = Carried {
            schema: SCHEMA.into(),
            name: "sleeper".into(),
            inputs: Vec::new(),
            instructions: 1,
            misses: [[7; 4]; 11],
            phases: [2, 12]
                .map(|misses| SignaturePhase {
                    share: 0.5,
                    misses: [[misses; 4]; 11],
                })
                .to_vec(),
        };
        let Ok(binary) = std::fs::read("/bin/sleep") else {
            println!("skipped: there is no /bin/sleep");
            return;
        };
        std::fs::write(&path, elf::embed(&binary, &carried).unwrap()).unwrap();
        let runnable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, runnable).unwrap();
        // Another test's child may hold the file open for writing up to its own exec.
        let mut child = loop {
            match std::process::Command::new(&path).arg("60").spawn() {
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
                other => break other.unwrap(),
            }
        };
        let mut signatures = Signatures::new(|_| {});
        let found = signatures.of_process(child.id());
        let phases = signatures.phases_of_process(child.id());
        let own = signatures.of_process(std::process::id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, Some(carried.signature()));
        let counts: Vec<u16> = phases.iter().map(|s| s.counts()[0][0]).collect();
        assert_eq!(counts, [2, 12]);
        assert_eq!(own, None);
    }
}
