//! Finds the file to run: the program, or the interpreter of a script.
//!
//! Input: names as the user wrote them, PATH. Output: paths of existing, suitable files, or a [`ProfileError`].

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use countersteer_files::name::original;

use super::ProfileError;

/// Largest nesting of interpreters.
const NESTING: usize = 4;
/// Architecture whose programs are recorded, on any machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    X86_64,
    Aarch64,
}

impl Architecture {
    const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// Returns this machine's architecture; `None` if its programs are not recorded.
    #[must_use]
    pub fn here() -> Option<Self> {
        let named = |of: &Self| of.name() == std::env::consts::ARCH;
        Self::ALL.into_iter().find(named)
    }

    /// Returns QEMU's name of the architecture, which equals Rust's.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// Returns the architecture's number in ELF headers.
    const fn machine(self) -> u16 {
        match self {
            Self::X86_64 => 62,
            Self::Aarch64 => 183,
        }
    }

    /// Returns the CPU model that QEMU presents: one whose memory accesses are all visible to plugins. Those of SVE are not.
    pub(crate) const fn processor(self) -> &'static str {
        match self {
            Self::X86_64 => "max",
            Self::Aarch64 => "neoverse-n1",
        }
    }
}

/// Program prepared for QEMU.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PreparedProgram {
    pub architecture: Architecture,
    pub file: PathBuf,
    /// Arguments of a script's interpreter before the user's arguments.
    pub before: Vec<OsString>,
    pub zeroth: OsString,
}

/// Finds the program that `name` refers to in `directory`.
pub fn program(name: &str, directory: &Path) -> Result<PreparedProgram, ProfileError> {
    let raw = original(name);
    let file = if name.contains('/') {
        Some(directory.join(&raw))
    } else {
        in_path(&raw)
    };
    let file = file
        .filter(|f| f.is_file())
        .ok_or_else(|| ProfileError::NotFound {
            program: name.to_owned(),
        })?;
    resolve(file, raw, NESTING)
}

fn resolve(
    file: PathBuf,
    zeroth: OsString,
    nesting: usize,
) -> Result<PreparedProgram, ProfileError> {
    let path = file.display().to_string();
    let executable = file
        .metadata()
        .is_ok_and(|m| m.permissions().mode() & 0o111 != 0);
    if !executable {
        return Err(ProfileError::NotExecutable { path });
    }
    let head = head(&file).map_err(|_| ProfileError::NotExecutable { path: path.clone() })?;
    if head.starts_with(b"\x7fELF") {
        let machine = machine(&head);
        let known = |of: &Architecture| of.machine() == machine;
        let Some(architecture) = Architecture::ALL.into_iter().find(known) else {
            return Err(ProfileError::Architecture {
                path,
                machine: machine_name(machine),
            });
        };
        return Ok(PreparedProgram {
            architecture,
            file,
            before: Vec::new(),
            zeroth,
        });
    }
    let Some((interpreter, argument)) = interpreter(&head).filter(|_| nesting > 0) else {
        return Err(ProfileError::NotAProgram { path });
    };
    if !interpreter.is_file() {
        return Err(ProfileError::NotFound {
            program: interpreter.display().to_string(),
        });
    }
    let mut program = resolve(interpreter.clone(), interpreter.into(), nesting - 1)?;
    program.before.extend(argument);
    program.before.push(file.into());
    Ok(program)
}

fn head(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    countersteer_files::read::open(file)?
        .take(256)
        .read_to_end(&mut head)?;
    Ok(head)
}

fn machine(head: &[u8]) -> u16 {
    match head.get(18..20) {
        // Byte 5 gives the byte order. A 32-bit file is no x86-64 program, whatever its machine field contains.
        Some(bytes) if head[5] == 1 => u16::from_le_bytes([bytes[0], bytes[1]]),
        Some(bytes) => u16::from_be_bytes([bytes[0], bytes[1]]),
        None => 0,
    }
}

fn machine_name(machine: u16) -> String {
    match machine {
        3 => "32-bit x86".into(),
        40 => "32-bit Arm".into(),
        243 => "RISC-V".into(),
        21 => "PowerPC64".into(),
        22 => "s390".into(),
        other => format!("ELF machine {other}"),
    }
}

fn interpreter(head: &[u8]) -> Option<(PathBuf, Option<OsString>)> {
    let line = head
        .strip_prefix(b"#!")?
        .split(|b| *b == b'\n')
        .next()?
        .trim_ascii();
    let end = line
        .iter()
        .position(|b| *b == b' ' || *b == b'\t')
        .unwrap_or(line.len());
    let argument = line[end..].trim_ascii();
    let argument = (!argument.is_empty()).then(|| OsStr::from_bytes(argument).to_owned());
    Some((PathBuf::from(OsStr::from_bytes(&line[..end])), argument))
}

fn in_path(name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|d| d.join(name))
        .find(|f| f.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory_with(name: &str, content: &[u8], mode: u32) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        directory
    }

    #[test]
    fn scripts_run_through_their_interpreter() {
        let directory = directory_with("script", b"#! /bin/sh -e\necho\n", 0o755);
        let found = program("./script", directory.path()).unwrap();
        assert_eq!(found.zeroth, "/bin/sh");
        assert_eq!(
            found.before,
            [
                OsString::from("-e"),
                directory.path().join("./script").into()
            ]
        );
    }

    #[test]
    fn programs_that_cannot_run_are_distinguished() {
        let text = directory_with("text", b"hello", 0o755);
        assert!(matches!(
            program("./text", text.path()),
            Err(ProfileError::NotAProgram { .. })
        ));
        assert!(matches!(
            program("./other", text.path()),
            Err(ProfileError::NotFound { .. })
        ));
        assert!(matches!(
            program("no-such-program-anywhere", text.path()),
            Err(ProfileError::NotFound { .. })
        ));
        let locked = directory_with("locked", b"#!/bin/sh\n", 0o644);
        assert!(matches!(
            program("./locked", locked.path()),
            Err(ProfileError::NotExecutable { .. })
        ));
        let mut arm = b"\x7fELF\x02\x01\x01".to_vec();
        arm.resize(18, 0);
        arm.extend([183, 0]);
        let own = directory_with("arm", &arm, 0o755);
        let found = program("./arm", own.path()).unwrap();
        assert_eq!(found.architecture, Architecture::Aarch64);
        arm[18] = 40;
        let own = directory_with("arm", &arm, 0o755);
        let error = program("./arm", own.path()).unwrap_err();
        assert!(error.to_string().contains("32-bit Arm"), "{error}");
    }
}
