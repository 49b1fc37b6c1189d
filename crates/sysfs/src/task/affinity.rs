//! Affinity masks of threads.
//!
//! Input: a thread, CPUs. Output: the thread's affinity mask, or its change. Masks of the C library end at CPU 1,023; the
//! kernel's do not.

use std::io;

use countersteer_model::cpuset::CpuSet;
use nix::errno::Errno;

use crate::procfs::PROC;

/// Number of words of a mask: enough for the largest CPU number of a set.
const WORDS: usize = (countersteer_model::cpuset::MAX_CPU as usize + 1) / 64;

/// Returns the affinity mask of a thread, without CPUs that are offline: the kernel leaves them out.
///
/// # Errors
/// Fails if the thread has exited.
pub fn mask(tid: u32) -> io::Result<CpuSet> {
    let mut words = vec![0u64; WORDS];
    let size = size_of_val(words.as_slice());
    // SAFETY: the kernel writes at most `size` bytes, all of which `words` owns.
    let written =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, size, words.as_mut_ptr()) };
    let written = usize::try_from(written).map_err(|_| io::Error::last_os_error())?;
    words.truncate(written / 8);
    Ok(CpuSet::from_words(words))
}

/// Returns the affinity mask of a thread, with its CPUs that are offline. They are the thread's again as soon as they come online.
///
/// # Errors
/// Fails if the thread has exited.
pub fn stored_mask(tid: u32) -> io::Result<CpuSet> {
    PROC.stored_mask(tid).map_or_else(|| mask(tid), Ok)
}

/// Returns the affinity mask of a thread that probably is `expected`. The slower [`stored_mask`] is read only if it is not: then
/// CPUs may be going offline, which the kernel's list of offline CPUs shows later than the masks.
///
/// # Errors
/// Fails if the thread has exited.
pub fn mask_beside(tid: u32, expected: &CpuSet) -> io::Result<CpuSet> {
    let found = mask(tid)?;
    if found == *expected {
        return Ok(found);
    }
    stored_mask(tid)
}

/// Sets the affinity mask of a thread.
///
/// # Errors
/// Fails if the thread has exited, belongs to another user, or its cpuset allows none of these CPUs.
pub fn confine(tid: u32, cpus: &CpuSet) -> io::Result<()> {
    let words = cpus.words();
    // SAFETY: the kernel reads exactly that many bytes of `words`.
    let done = unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            tid,
            size_of_val(words),
            words.as_ptr(),
        )
    };
    Ok(Errno::result(done).map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_that_was_set_is_read_back() {
        let before = mask(0).unwrap();
        let one: CpuSet = before.iter().take(1).collect();
        confine(0, &one).unwrap();
        assert_eq!(mask(0).unwrap(), one);
        let tid = nix::unistd::gettid().as_raw() as u32;
        assert_eq!(stored_mask(tid).unwrap(), one);
        assert_eq!(mask_beside(tid, &one).unwrap(), one);
        assert_eq!(mask_beside(tid, &CpuSet::default()).unwrap(), one);
        confine(0, &before).unwrap();
        assert_eq!(mask(0).unwrap(), before);
        assert!(confine(0, &CpuSet::default()).is_err());
        assert!(mask(u32::MAX >> 1).is_err());
    }
}
