//! Processes, threads and kernel settings in /proc.
//!
//! Input: a folder in place of /proc, PIDs and TIDs. Output: the contents of its files. For a process or thread that has exited,
//! the result is `None`. Another file that cannot be read or parsed is a [`ProcError`] in methods that return errors, and `None`
//! in the others.

use std::borrow::Cow;
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::CpuId;

use crate::files;

mod parse;

/// Root folder with the structure of /proc.
#[derive(Clone, Debug)]
pub struct Procfs(Cow<'static, str>);

/// /proc of this machine.
pub static PROC: Procfs = Procfs(Cow::Borrowed("/proc"));

/// Error of reading or parsing a /proc file.
#[derive(Debug, thiserror::Error)]
#[error("{why}; {remedy}")]
pub struct ProcError {
    /// File, line of a parse error, and description.
    pub why: String,
    pub remedy: &'static str,
    /// True if the file is missing: its process or thread has exited, or the kernel lacks it.
    is_absent: bool,
}

impl ProcError {
    fn unreadable(path: &Path, error: &io::Error) -> Self {
        Self {
            why: format!("cannot read {}: {error}", path.display()),
            remedy: match error.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files (`ulimit -n`)",
                Some(libc::EACCES | libc::EPERM) => {
                    "run as the user whose process it is, or as root"
                }
                _ => "is /proc mounted, and does this kernel have the file?",
            },
            is_absent: matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)),
        }
    }

    fn malformed(path: &Path, line: usize, expected: &str, found: &str) -> Self {
        let path = path.display();
        Self {
            why: format!("{path}:{line}: expected {expected}, found `{found}`"),
            remedy: "report it with the kernel's version",
            is_absent: false,
        }
    }
}

/// Identity of a file: device and inode.
pub type FileId = (u64, u64);

/// Fields of a `stat` file of a thread or a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// True if running or waiting for a CPU.
    pub runnable: bool,
    /// True if it has exited and its parent has not waited for it.
    pub zombie: bool,
    /// True if it is exiting.
    pub exiting: bool,
    pub parent: u32,
    pub session: u32,
    pub nice: i8,
    /// Run time in clock ticks; in a process's own `stat`, the sum over its threads.
    pub ran_ticks: u64,
    /// Number of threads of its process.
    pub threads: u64,
    /// Start time in clock ticks since boot. With the TID it identifies the thread.
    pub started: u64,
    /// CPU it ran on last, by the kernel's number.
    pub cpu: CpuId,
    /// True for a kernel thread.
    pub kernel: bool,
}

/// Fields of a file `/proc/PID/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// PID of the thread's process.
    pub process: u32,
    pub parent: u32,
    /// TID in its own PID namespace, which differs in a container; from Linux 4.1 on.
    pub own_number: Option<u32>,
    /// Real and effective user IDs, and others that it may switch to.
    pub users: Vec<u32>,
    /// Effective capabilities, one bit each.
    pub capabilities: u64,
    /// True if it has its own memory; kernel threads have none.
    pub has_memory: bool,
}

/// Sums that the kernel keeps for a thread since its start (`schedstat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedstatSums {
    pub ran_ns: u64,
    /// Run-queue latency: time in which it was runnable and waited for a CPU.
    pub waited_ns: u64,
    /// Number of times that it got a CPU.
    pub times: u64,
}

/// Time that tasks were stalled on a resource, in microseconds since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallTime {
    /// Time in which at least one task was stalled.
    pub some_us: Option<u64>,
    /// Time in which all tasks were stalled.
    pub full_us: Option<u64>,
}

/// Longest line of a thread, with room to spare: fifty numbers and a name are shorter.
const LONGEST_LINE: usize = 2048;

impl Procfs {
    /// Returns the procfs of a machine whose file systems are below `root`.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        Self(root.join("proc").to_string_lossy().into_owned().into())
    }

    /// Returns all processes, in order.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        files::numbered((*self.0).as_ref(), "").unwrap_or_default()
    }

    /// Returns the threads of a process, in order; empty if it has exited.
    #[must_use]
    pub fn threads(&self, pid: u32) -> Vec<u32> {
        self.threads_of(pid).unwrap_or_default()
    }

    /// Returns the threads of a process, like [`Self::threads`], with the error.
    ///
    /// # Errors
    /// Fails if the folder of an existing process cannot be read.
    pub fn threads_of(&self, pid: u32) -> Result<Vec<u32>, ProcError> {
        let path = self.path(pid, "task");
        let threads = files::numbered(&path, "");
        let threads = threads.map_err(|error| ProcError::unreadable(&path, &error));
        Ok(there(threads)?.unwrap_or_default())
    }

    /// True if a process or thread with this number exists.
    #[must_use]
    pub fn has(&self, pid: u32) -> bool {
        self.path(pid, "").exists()
    }

    /// Returns the process of a thread.
    #[must_use]
    pub fn process_of(&self, tid: u32) -> Option<u32> {
        Some(self.status(tid)?.process)
    }

    /// Returns the existing child processes of a process, created by any of its threads.
    #[must_use]
    pub fn children(&self, pid: u32) -> Vec<u32> {
        let of = |tid: u32| self.text(&format!("{pid}/task/{tid}/children")).ok();
        let texts: Vec<String> = self.threads(pid).into_iter().filter_map(of).collect();
        let all = texts.iter().flat_map(|text| text.split_whitespace());
        all.filter_map(|number| number.parse().ok()).collect()
    }

    /// Returns the name of a process or a thread. A program may choose any bytes.
    #[must_use]
    pub fn name(&self, tid: u32) -> Option<String> {
        self.name_of(tid).ok().flatten()
    }

    /// Returns the name of a process or a thread, with the error.
    ///
    /// # Errors
    /// Fails if it exists and its name cannot be read.
    pub fn name_of(&self, tid: u32) -> Result<Option<String>, ProcError> {
        let text = there(self.text(&format!("{tid}/comm")))?;
        Ok(text.map(|text| text.trim_end().to_owned()))
    }

    /// Returns the status of a process or a thread.
    #[must_use]
    pub fn status(&self, pid: u32) -> Option<Status> {
        self.status_of(pid).ok().flatten()
    }

    /// Returns the status of a process or a thread, with the error.
    ///
    /// # Errors
    /// Fails if it exists and its file cannot be read or parsed.
    pub fn status_of(&self, pid: u32) -> Result<Option<Status>, ProcError> {
        there(self.read(&format!("{pid}/status"), parse::status))
    }

    /// Returns the affinity mask of a thread, with its CPUs that are offline.
    #[must_use]
    pub fn stored_mask(&self, tid: u32) -> Option<CpuSet> {
        let mask = |text: &str| Ok(field(text, "Cpus_allowed").and_then(files::mask));
        self.read(&format!("{tid}/status"), mask).ok()?
    }

    /// Returns the status of this process.
    ///
    /// # Errors
    /// Fails if the file cannot be read or parsed.
    pub fn own_status(&self) -> Result<Status, ProcError> {
        self.read("self/status", parse::status)
    }

    /// Returns the control group of a process in the unified hierarchy.
    #[must_use]
    pub fn control_group(&self, pid: u32) -> Option<String> {
        let text = self.text(&format!("{pid}/cgroup")).ok()?;
        let group = text.lines().find_map(|line| line.strip_prefix("0::"))?;
        Some(group.to_owned())
    }

    /// Returns the number of threads on the machine.
    #[must_use]
    pub fn thread_count(&self) -> Option<usize> {
        let loads = self.text("loadavg").ok()?;
        let field = loads.split_whitespace().nth(3)?;
        field.split_once('/')?.1.parse().ok()
    }

    /// Returns the TID that the kernel assigned last.
    #[must_use]
    pub fn newest(&self) -> Option<u32> {
        let loads = self.text("loadavg").ok()?;
        loads.split_whitespace().last()?.parse().ok()
    }

    /// True if a thread has exited; it may be a zombie.
    #[must_use]
    pub fn has_exited(&self, tid: u32) -> bool {
        self.process_stat(tid).is_none_or(|stat| stat.zombie)
    }

    /// Returns the file that a process executes; `None` for processes of other users.
    #[must_use]
    pub fn executable(&self, pid: u32) -> Option<PathBuf> {
        std::fs::read_link(self.executable_link(pid)).ok()
    }

    /// Returns the link to the executed file. It leads to the file even after its path was removed.
    #[must_use]
    pub fn executable_link(&self, pid: u32) -> PathBuf {
        self.path(pid, "exe")
    }

    /// Returns the identity of the executed file, which changes at an `exec`.
    #[must_use]
    pub fn executable_id(&self, pid: u32) -> Option<FileId> {
        let file = self.executable_metadata(pid)?;
        Some((file.dev(), file.ino()))
    }

    #[must_use]
    pub fn executable_metadata(&self, pid: u32) -> Option<Metadata> {
        std::fs::metadata(self.executable_link(pid)).ok()
    }

    /// Returns the user ID of a process.
    #[must_use]
    pub fn owner(&self, pid: u32) -> Option<u32> {
        Some(std::fs::metadata(self.path(pid, "")).ok()?.uid())
    }

    /// Returns the link to the file behind a descriptor of a process.
    #[must_use]
    pub fn descriptor(&self, pid: u32, number: RawFd) -> PathBuf {
        self.path(pid, &format!("fd/{number}"))
    }

    /// Returns the link to the file behind a descriptor of this process.
    #[must_use]
    pub fn own_descriptor(&self, number: RawFd) -> PathBuf {
        PathBuf::from(format!("{}/self/fd/{number}", self.0))
    }

    /// Returns the mount ID of an open file of this process.
    #[must_use]
    pub fn mount_of(&self, file: RawFd) -> Option<u64> {
        let text = self.text(&format!("self/fdinfo/{file}")).ok()?;
        field(&text, "mnt_id")?.parse().ok()
    }

    /// True if this process sees the kernel's own TIDs, that is, those of the outermost PID namespace.
    #[must_use]
    pub fn in_outermost_namespace(&self) -> bool {
        const OUTERMOST: &str = "pid:[4026531836]";
        let namespace = std::fs::read_link(Path::new(&*self.0).join("self/ns/pid"));
        namespace.is_ok_and(|namespace| namespace.as_os_str() == OUTERMOST)
    }

    /// Returns the state of a thread; `None` if it has exited or is exiting.
    #[must_use]
    pub fn stat(&self, pid: u32, tid: u32) -> Option<Stat> {
        let stat = self.line(format_args!("{pid}/task/{tid}/stat")).ok()?;
        (!stat.zombie && !stat.exiting).then_some(stat)
    }

    /// Returns the state of a process or a thread, zombies included. For a process, times are the sums of its threads.
    #[must_use]
    pub fn process_stat(&self, pid: u32) -> Option<Stat> {
        self.line(format_args!("{pid}/stat")).ok()
    }

    /// Returns the state of the calling thread.
    ///
    /// # Errors
    /// Fails if the file cannot be read or parsed.
    pub fn own_stat(&self) -> Result<Stat, ProcError> {
        self.line(format_args!("thread-self/stat"))
    }

    /// Returns a thread's TID in its own PID namespace, and its start time: its identity for programs of its own container.
    #[must_use]
    pub fn identity(&self, tid: u32) -> Option<(u32, u64)> {
        Some((
            self.status(tid)?.own_number?,
            self.process_stat(tid)?.started,
        ))
    }

    fn line(&self, file: std::fmt::Arguments<'_>) -> Result<Stat, ProcError> {
        // This is called every period for some threads: it allocates nothing and makes a single read.
        let mut line = [0; LONGEST_LINE];
        let mut path = [0u8; 256];
        let mut rest = path.as_mut_slice();
        let fits = write!(rest, "{}/{file}", self.0);
        let left = rest.len();
        let path = Path::new(str::from_utf8(&path[..256 - left]).unwrap_or_default());
        let read = fits
            .and_then(|()| File::open(path))
            .and_then(|mut file| file.read(&mut line));
        let length = read.map_err(|error| ProcError::unreadable(path, &error))?;
        parse::stat(&line[..length]).ok_or_else(|| {
            let found = String::from_utf8_lossy(&line[..length.min(80)]);
            ProcError::malformed(path, 1, "the numbers of a thread", &found)
        })
    }

    /// Returns the sums of a live thread; `None` if the kernel does not keep them.
    #[must_use]
    pub fn sums(&self, tid: u32) -> Option<SchedstatSums> {
        self.read(&format!("{tid}/schedstat"), parse::sums).ok()
    }

    /// Returns the sums of this process's main thread.
    ///
    /// # Errors
    /// Fails if the kernel does not keep them.
    pub fn own_sums(&self) -> Result<SchedstatSums, ProcError> {
        self.read("self/schedstat", parse::sums)
    }

    /// Returns the time that tasks were stalled on `cpu`, `memory` or `io`.
    ///
    /// # Errors
    /// Fails if the kernel does not keep it, or the file cannot be parsed.
    pub fn pressure(&self, resource: &str) -> Result<StallTime, ProcError> {
        self.read(&format!("pressure/{resource}"), parse::pressure)
    }

    /// Returns the clock ticks in which each CPU was busy.
    #[must_use]
    pub fn busy_ticks(&self) -> Vec<(CpuId, f64)> {
        let stat = self.text("stat").unwrap_or_default();
        stat.lines().filter_map(parse::busy_ticks).collect()
    }

    /// Returns the contents of `cpuinfo`: a block of `name: value` lines for each processor.
    #[must_use]
    pub fn cpuinfo(&self) -> String {
        self.text("cpuinfo").unwrap_or_default()
    }

    /// Returns a kernel setting, as `sysctl kernel.NAME` shows it; `None` if it is missing or empty.
    #[must_use]
    pub fn setting(&self, name: &str) -> Option<String> {
        let text = self.text(&format!("sys/kernel/{name}")).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// True if the kernel supports a file system.
    #[must_use]
    pub fn knows_file_system(&self, name: &str) -> bool {
        let known = self.text("filesystems").unwrap_or_default();
        known
            .lines()
            .any(|line| line.split_whitespace().last() == Some(name))
    }

    /// Returns the ID of the current boot.
    #[must_use]
    pub fn boot_id(&self) -> String {
        self.setting("random/boot_id").unwrap_or_default()
    }

    fn path(&self, pid: u32, file: &str) -> PathBuf {
        PathBuf::from(format!("{}/{pid}/{file}", self.0))
    }

    fn text(&self, file: &str) -> Result<String, ProcError> {
        let path = Path::new(&*self.0).join(file);
        match std::fs::read(&path) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) => Err(ProcError::unreadable(&path, &error)),
        }
    }

    fn read<T>(
        &self,
        file: &str,
        parse: impl FnOnce(&str) -> Result<T, parse::Error>,
    ) -> Result<T, ProcError> {
        let text = self.text(file)?;
        parse(&text).map_err(|parse::Error { line, expected }| {
            let found = text.lines().nth(line - 1).unwrap_or_default();
            ProcError::malformed(&Path::new(&*self.0).join(file), line, expected, found)
        })
    }
}

/// Returns the value of a line `name: value`.
#[must_use]
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(key, _)| key.trim() == name)?;
    Some(value.trim())
}

/// Returns `None` if the process or the thread no longer exists.
fn there<T>(read: Result<T, ProcError>) -> Result<Option<T>, ProcError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_absent => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
