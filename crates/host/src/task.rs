//! Single threads by system call and /proc: what they are confined to, where they ran last, what state they are in.
//!
//! The only unsafe code of this engine: the C library's masks end at CPU 1,023, the kernel's do not.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;

use countersteer_core::cpuset::CpuSet;
use countersteer_core::units::CpuId;

/// Words of a mask: as many CPUs as a set may name.
const WORDS: usize = (countersteer_core::cpuset::MAX_CPU as usize + 1) / 64;

/// CPUs that a thread is confined to.
///
/// # Errors
/// It is gone.
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

/// Confines a thread.
///
/// # Errors
/// It is gone, another user's, or a cpuset allows none of these CPUs.
pub(crate) fn confine(tid: u32, cpus: &CpuSet) -> io::Result<()> {
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
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Sets a thread's nice value.
///
/// # Errors
/// It is gone, another user's, or would rank higher than is permitted.
pub(crate) fn renice(tid: u32, nice: i8) -> io::Result<()> {
    // SAFETY: plain system call without memory.
    let done = unsafe { libc::setpriority(libc::PRIO_PROCESS, tid, i32::from(nice)) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A file by device and inode.
pub(crate) type FileId = (u64, u64);

/// The file that a process executes; nothing of one that has ended, or that is another user's.
pub(crate) fn executable(pid: u32) -> Option<FileId> {
    let file = std::fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some((file.dev(), file.ino()))
}

/// A line of `/proc/PID/task/TID/stat`, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Running or waiting for a CPU.
    pub(crate) runnable: bool,
    pub(crate) parent: u32,
    pub(crate) session: u32,
    pub(crate) nice: i8,
    /// When it was born, in clock ticks since the machine started; with its number, that is its identity.
    pub(crate) started: u64,
    /// Where it ran last, by the kernel's number.
    pub(crate) cpu: CpuId,
    /// A thread of the kernel.
    pub(crate) kernel: bool,
}

/// A line of a thread is shorter: fifty numbers and a name.
const LONGEST_LINE: usize = 2048;

/// Reads it; nothing of a thread that has ended, or is about to.
pub(crate) fn stat(pid: u32, tid: u32) -> Option<Stat> {
    // Of some threads this is asked every period: no memory is asked for, and no more of the kernel than one reading.
    let mut line = [0; LONGEST_LINE];
    let mut path = [0u8; 64];
    let mut rest = path.as_mut_slice();
    write!(rest, "/proc/{pid}/task/{tid}/stat").ok()?;
    let left = rest.len();
    let path = str::from_utf8(&path[..path.len() - left]).ok()?;
    let length = File::open(path).ok()?.read(&mut line).ok()?;
    parse(&line[..length])
}

fn parse(line: &[u8]) -> Option<Stat> {
    const KERNEL_THREAD: u64 = 0x0020_0000;
    const ENDING: u64 = 4;
    // A name may hold blanks and parentheses; what follows the last one is numbers.
    let name_ends = line.iter().rposition(|b| *b == b')')?;
    let mut fields = str::from_utf8(&line[name_ends + 1..])
        .ok()?
        .split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    // So many fields are passed over before each number.
    let mut number = |skip: usize| fields.nth(skip)?.parse::<i64>().ok();
    let parent = u32::try_from(number(0)?).ok()?;
    let session = u32::try_from(number(1)?).ok()?;
    let flags = number(2)? as u64;
    if flags & ENDING != 0 {
        return None;
    }
    let kernel = flags & KERNEL_THREAD != 0;
    let nice = i8::try_from(number(9)?).ok()?;
    let started = u64::try_from(number(2)?).ok()?;
    let cpu = CpuId(u32::try_from(number(16)?).ok()?);
    Some(Stat {
        runnable: state == "R",
        parent,
        session,
        nice,
        started,
        cpu,
        kernel,
    })
}

/// The threads of a process; none of one that has ended.
pub fn threads(pid: u32) -> Vec<u32> {
    numbers(&format!("/proc/{pid}/task"))
}

pub(crate) fn processes() -> Vec<u32> {
    numbers("/proc")
}

fn numbers(folder: &str) -> Vec<u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = entries
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Tells one start of the machine from another.
pub(crate) fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "42 (a ) b) R 7 42 41 0 -1 4194304 1 0 0 0 30 12 0 0 20 5 3 0 99 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 3 0 0";

    #[test]
    fn a_line_of_stat_is_read_behind_the_name() {
        let stat = parse(LINE.as_bytes()).unwrap();
        assert_eq!(
            (stat.runnable, stat.parent, stat.session, stat.nice),
            (true, 7, 41, 5)
        );
        assert_eq!((stat.started, stat.cpu, stat.kernel), (99, CpuId(3), false));
        assert_eq!(
            parse(LINE.replace(") R ", ") Z ").as_bytes()),
            None,
            "one that has ended"
        );
        assert_eq!(
            parse(LINE.replace("4194304", "4194308").as_bytes()),
            None,
            "one that is about to"
        );
        assert!(
            parse(LINE.replace("4194304", "2129984").as_bytes())
                .unwrap()
                .kernel
        );
        assert_eq!(parse(b"42 (cut"), None);
    }

    #[test]
    fn a_mask_that_was_set_is_read_back() {
        let before = mask(0).unwrap();
        let one: CpuSet = before.iter().take(1).collect();
        confine(0, &one).unwrap();
        assert_eq!(mask(0).unwrap(), one);
        confine(0, &before).unwrap();
        assert_eq!(mask(0).unwrap(), before);
        assert!(confine(0, &CpuSet::default()).is_err());
        assert!(mask(u32::MAX >> 1).is_err());
    }
}
