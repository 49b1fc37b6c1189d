//! Processes and threads as /proc shows them.
//!
//! Input: a folder in the place of /proc, and numbers of processes and threads. Output: what its files say; nothing of those that
//! have exited.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use countersteer_model::units::CpuId;

/// A folder like /proc.
#[derive(Clone, Copy, Debug)]
pub struct Procfs<'a>(&'a str);

/// /proc of this machine.
pub const PROC: Procfs<'static> = Procfs("/proc");

/// A file by device and inode.
pub type FileId = (u64, u64);

/// A line of `/proc/PID/task/TID/stat`, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Running or waiting for a CPU.
    pub runnable: bool,
    pub parent: u32,
    pub session: u32,
    pub nice: i8,
    /// When it was started, in clock ticks since the machine started; with its number, that is its identity.
    pub started: u64,
    /// Where it ran last, by the kernel's number.
    pub cpu: CpuId,
    /// A thread of the kernel.
    pub kernel: bool,
}

/// A file `/proc/PID/status`, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The process that a thread belongs to.
    pub process: u32,
    pub parent: u32,
    /// Its real and its effective user, and others that it may take.
    pub users: Vec<u32>,
    /// Capabilities that are in effect, a bit each.
    pub capabilities: u64,
    /// It has memory of its own: threads of the kernel have none.
    pub has_memory: bool,
}

/// A line of a thread is shorter: fifty numbers and a name.
const LONGEST_LINE: usize = 2048;

impl<'a> Procfs<'a> {
    /// A folder in the place of /proc.
    #[must_use]
    pub const fn at(folder: &'a str) -> Self {
        Self(folder)
    }

    /// All processes, in order.
    #[must_use]
    pub fn processes(self) -> Vec<u32> {
        numbers(self.0.as_ref())
    }

    /// The threads of a process, in order; none of one that has exited.
    #[must_use]
    pub fn threads(self, pid: u32) -> Vec<u32> {
        numbers(&self.path(pid, "task"))
    }

    /// Whether there is a process of this number, or a thread.
    #[must_use]
    pub fn has(self, pid: u32) -> bool {
        self.path(pid, "").exists()
    }

    /// The process of a thread.
    #[must_use]
    pub fn process_of(self, tid: u32) -> Option<u32> {
        Some(self.status(tid)?.process)
    }

    /// The name of a process or a thread. A program may choose any bytes.
    #[must_use]
    pub fn name(self, tid: u32) -> Option<String> {
        let bytes = std::fs::read(self.path(tid, "comm")).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    }

    /// What a process or a thread is.
    #[must_use]
    pub fn status(self, pid: u32) -> Option<Status> {
        status(&std::fs::read_to_string(self.path(pid, "status")).ok()?)
    }

    /// The control group of a process in the unified hierarchy.
    #[must_use]
    pub fn control_group(self, pid: u32) -> Option<String> {
        let text = std::fs::read_to_string(self.path(pid, "cgroup")).ok()?;
        let group = text.lines().find_map(|line| line.strip_prefix("0::"))?;
        Some(group.to_owned())
    }

    /// How many threads there are on the machine.
    #[must_use]
    pub fn thread_count(self) -> Option<usize> {
        let loads = self.loads()?;
        let field = loads.split_whitespace().nth(3)?;
        field.split_once('/')?.1.parse().ok()
    }

    /// The number that the kernel has given last to a thread.
    #[must_use]
    pub fn newest(self) -> Option<u32> {
        self.loads()?.split_whitespace().last()?.parse().ok()
    }

    /// Whether a thread has exited, and may be a zombie.
    #[must_use]
    pub fn has_exited(self, tid: u32) -> bool {
        let Ok(stat) = std::fs::read_to_string(self.path(tid, "stat")) else {
            return true;
        };
        let state = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next());
        matches!(state, Some('Z' | 'X'))
    }

    /// The file that a process executes; nothing of another user's.
    pub fn executable(self, pid: u32) -> Option<PathBuf> {
        std::fs::read_link(self.path(pid, "exe")).ok()
    }

    /// The same by number, which an `exec` changes.
    pub fn executable_id(self, pid: u32) -> Option<FileId> {
        let file = std::fs::metadata(self.path(pid, "exe")).ok()?;
        Some((file.dev(), file.ino()))
    }

    /// What a thread does; nothing of one that has exited, or is about to.
    pub fn stat(self, pid: u32, tid: u32) -> Option<Stat> {
        // Of some threads this is asked every period: no memory is asked for, and no more of the kernel than one reading.
        let mut line = [0; LONGEST_LINE];
        let mut path = [0u8; 256];
        let mut rest = path.as_mut_slice();
        write!(rest, "{}/{pid}/task/{tid}/stat", self.0).ok()?;
        let left = rest.len();
        let path = str::from_utf8(&path[..path.len() - left]).ok()?;
        let length = File::open(path).ok()?.read(&mut line).ok()?;
        stat(&line[..length])
    }

    /// What distinguishes one start of the machine from another.
    pub fn boot_id(self) -> String {
        let path = PathBuf::from(self.0).join("sys/kernel/random/boot_id");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.trim().to_owned()
    }

    fn loads(self) -> Option<String> {
        std::fs::read_to_string(PathBuf::from(self.0).join("loadavg")).ok()
    }

    fn path(self, pid: u32, file: &str) -> PathBuf {
        PathBuf::from(format!("{}/{pid}/{file}", self.0))
    }
}

/// Entries of a folder that are numbers, in order.
fn numbers(folder: &std::path::Path) -> Vec<u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = entries
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}

fn status(text: &str) -> Option<Status> {
    let field = |key: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(key))?;
        Some(value.trim())
    };
    let number = |key: &str| field(key)?.parse().ok();
    let users = field("Uid:").unwrap_or_default().split_whitespace();
    Some(Status {
        process: number("Tgid:")?,
        parent: number("PPid:")?,
        users: users.filter_map(|id| id.parse().ok()).collect(),
        capabilities: field("CapEff:")
            .and_then(|hex| u64::from_str_radix(hex, 16).ok())
            .unwrap_or_default(),
        has_memory: field("VmSize:").is_some(),
    })
}

fn stat(line: &[u8]) -> Option<Stat> {
    const KERNEL_THREAD: u64 = 0x0020_0000;
    const EXITING: u64 = 4;
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
    if flags & EXITING != 0 {
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

#[cfg(test)]
mod tests {
    use countersteer_fuzz::fake_root::write;

    use super::*;

    const LINE: &str = "42 (a ) b) R 7 42 41 0 -1 4194304 1 0 0 0 30 12 0 0 20 5 3 0 99 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 3 0 0";

    #[test]
    fn files_of_a_folder_in_the_place_of_proc_are_read() {
        let root = tempfile::tempdir().unwrap();
        let status = "Name:\tsh\nTgid:\t42\nPPid:\t7\nUid:\t1000\t0\t0\t0\nVmSize:\t 9 kB\nCapEff:\t0000000000800000\n";
        write(
            root.path(),
            &[
                ("42/comm", "a ) b\n"),
                ("42/status", status),
                ("42/cgroup", "1:x:/other\n0::/user.slice/a\n"),
                ("42/task/42/stat", LINE),
                ("42/task/43/stat", &LINE.replace(") R ", ") Z ")),
                ("42/stat", LINE),
                ("43/stat", &LINE.replace(") R ", ") Z ")),
                ("loadavg", "0.5 0.4 0.3 2/345 9001\n"),
                ("sys/kernel/random/boot_id", "c0ffee\n"),
                ("self/comm", "not a number"),
            ],
        );
        let proc = Procfs::at(root.path().to_str().unwrap());
        assert_eq!(
            (proc.processes(), proc.threads(42)),
            (vec![42, 43], vec![42, 43])
        );
        assert_eq!(proc.name(42).as_deref(), Some("a ) b"));
        assert_eq!(proc.control_group(42).as_deref(), Some("/user.slice/a"));
        assert_eq!(
            (proc.thread_count(), proc.newest()),
            (Some(345), Some(9001))
        );
        assert_eq!(proc.boot_id(), "c0ffee");
        let status = proc.status(42).unwrap();
        assert_eq!((status.process, status.parent), (42, 7));
        assert_eq!(status.users, [1000, 0, 0, 0]);
        assert!(status.has_memory && status.capabilities == 1 << 23);
        assert_eq!(proc.stat(42, 42).map(|stat| stat.started), Some(99));
        assert_eq!(proc.stat(42, 43), None);
        assert!(!proc.has_exited(42) && proc.has_exited(43) && proc.has_exited(44));
        assert!(proc.has(42) && !proc.has(44));
        assert_eq!((proc.process_of(42), proc.process_of(44)), (Some(42), None));
        assert!(proc.threads(44).is_empty() && proc.name(44).is_none());
    }

    #[test]
    fn a_line_of_stat_is_read_behind_the_name() {
        let read = stat(LINE.as_bytes()).unwrap();
        assert_eq!(
            (read.runnable, read.parent, read.session, read.nice),
            (true, 7, 41, 5)
        );
        assert_eq!((read.started, read.cpu, read.kernel), (99, CpuId(3), false));
        let exiting = LINE.replace("4194304", "4194308");
        assert_eq!(stat(exiting.as_bytes()), None, "one that is about to exit");
        let kernel = LINE.replace("4194304", "2129984");
        assert!(stat(kernel.as_bytes()).unwrap().kernel);
        assert_eq!(stat(b"42 (cut"), None);
    }
}
