//! Differences between a recorded run and a run without the recorder, as far as files and processes show them.
//!
//! Input: paths, and addresses of code. Output: findings, which the callers note on the control page.

use std::ffi::{CStr, CString};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Option in QEMU's command line that gives the program's first argument; the program follows it.
const ZEROTH: &[u8] = b"-0";

/// Returns the program that this process runs, from QEMU's own command line.
pub fn own_program() -> Option<Vec<u8>> {
    let line = std::fs::read("/proc/self/cmdline").ok()?;
    let mut words = line.split(|byte| *byte == 0);
    words.find(|word| *word == ZEROTH)?;
    words.nth(1).map(<[u8]>::to_vec)
}

/// True if the file is setuid, setgid or has file capabilities that its user lacks. QEMU does not receive them.
pub fn has_rights_of_its_own(file: &[u8]) -> bool {
    let path = Path::new(std::ffi::OsStr::from_bytes(file));
    // SAFETY: the calls have no preconditions.
    let user = unsafe { (libc::geteuid(), libc::getegid()) };
    path.metadata().is_ok_and(|of| gains(&of, user)) || user.0 != 0 && has_capabilities(file)
}

fn gains(of: &Metadata, (user, group): (u32, u32)) -> bool {
    let has = |bits| of.mode() & bits == bits;
    has(libc::S_ISUID) && of.uid() != user
        || user != 0 && has(libc::S_ISGID | libc::S_IXGRP) && of.gid() != group
}

fn has_capabilities(file: &[u8]) -> bool {
    let Ok(file) = CString::new(file) else {
        return false;
    };
    let name = c"security.capability";
    // SAFETY: both are strings, and nothing is written to a buffer of no bytes.
    unsafe { libc::getxattr(file.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// Returns the file that an address of this process is mapped from.
pub fn mapped_file(address: u64) -> Option<Vec<u8>> {
    let maps = std::fs::read("/proc/self/maps").ok()?;
    maps.split(|byte| *byte == b'\n')
        .find_map(|line| file_of(line, address))
}

/// Returns the file of a line of `/proc/PID/maps` if the address is in its range.
fn file_of(line: &[u8], address: u64) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(line).ok()?;
    let (range, rest) = text.split_once(' ')?;
    let (from, to) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let inside = (number(from)?..number(to)?).contains(&address);
    let path = rest.find('/').map(|at| &rest[at..])?;
    inside.then(|| path.as_bytes().to_vec())
}

/// True if a file is the dynamic linker, which queries the processor's features in every program.
pub fn is_dynamic_linker(file: &[u8]) -> bool {
    let name = file.rsplit(|byte| *byte == b'/').next();
    name.is_some_and(|name| name.starts_with(b"ld-") || name.starts_with(b"ld.so"))
}

/// True if a file is an ELF program, for any processor.
pub fn is_elf(file: &CStr) -> bool {
    use std::io::Read;
    let path = Path::new(std::ffi::OsStr::from_bytes(file.to_bytes()));
    let mut head = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head == *b"\x7fELF"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn rights_are_those_that_the_user_lacks() {
        let directory = std::env::temp_dir().join(format!("steer-rights-{}", std::process::id()));
        std::fs::write(&directory, "").unwrap();
        let (own, other) = ((4711, 4711), (1, 1));
        let set = |mode| {
            std::fs::set_permissions(&directory, PermissionsExt::from_mode(mode)).unwrap();
            directory.metadata().unwrap()
        };
        let of = set(0o755);
        assert!(!gains(&of, other) && !gains(&of, own));
        let of = set(0o4755);
        assert!(gains(&of, other) && !gains(&of, (of.uid(), 1)));
        let of = set(0o2755);
        assert!(gains(&of, other) && !gains(&of, (1, of.gid())) && !gains(&of, (0, 1)));
        std::fs::remove_file(&directory).unwrap();
    }

    #[test]
    fn addresses_belong_to_the_file_that_is_mapped_there() {
        let line = b"7f00-7fff r-xp 00000000 fe:00 42    /usr/lib/a library.so";
        assert_eq!(file_of(line, 0x7f10).unwrap(), b"/usr/lib/a library.so");
        assert!(file_of(line, 0x7fff).is_none());
        assert!(file_of(b"7f00-7fff rw-p 00000000 00:00 0 ", 0x7f10).is_none());
        let own = mapped_file((is_elf as *const ()).addr() as u64);
        let program = std::env::current_exe().unwrap();
        assert_eq!(own.unwrap(), program.as_os_str().as_bytes());
        assert!(
            is_dynamic_linker(b"/lib64/ld-linux-x86-64.so.2") && !is_dynamic_linker(b"/bin/ld")
        );
    }
}
