//! Processes and threads as /proc shows them, and what the kernel says there of itself.
//!
//! Input: a folder in the place of /proc, and numbers of processes and threads. Output: what its files say. A process or thread that
//! has exited is nothing; a file that cannot be read otherwise, or not be understood, is a [`ProcError`] where callers show errors,
//! and nothing as well where they do not.

use std::borrow::Cow;
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use countersteer_model::units::CpuId;

use crate::files;

mod parse;

/// A folder like /proc.
#[derive(Clone, Debug)]
pub struct Procfs(Cow<'static, str>);

/// /proc of this machine.
pub static PROC: Procfs = Procfs(Cow::Borrowed("/proc"));

/// Why a file of /proc says nothing.
#[derive(Debug, thiserror::Error)]
#[error("{why}; {remedy}")]
pub struct ProcError {
    /// The file, its line where it was parsed, and what is wrong with it.
    pub why: String,
    pub remedy: &'static str,
    /// It is not there: its process or thread has exited, or the kernel lacks it.
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

/// A file by device and inode.
pub type FileId = (u64, u64);

/// The state of a thread or a process, from its `stat`, as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Running or waiting for a CPU.
    pub runnable: bool,
    /// It has exited, and its parent has not waited for it.
    pub zombie: bool,
    /// It is on its way out.
    pub exiting: bool,
    pub parent: u32,
    pub session: u32,
    pub nice: i8,
    /// Clock ticks that it ran; those of all threads in a process's own `stat`.
    pub ran_ticks: u64,
    /// Threads of its process.
    pub threads: u64,
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
    /// The number by which it knows itself, which is another one in a container; from Linux 4.1 on.
    pub own_number: Option<u32>,
    /// Its real and its effective user, and others that it may take.
    pub users: Vec<u32>,
    /// Capabilities that are in effect, a bit each.
    pub capabilities: u64,
    /// It has memory of its own: threads of the kernel have none.
    pub has_memory: bool,
}

/// Sums that the kernel keeps of a thread since its start (`schedstat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub ran_ns: u64,
    /// Time that it could have run and waited for a CPU.
    pub waited_ns: u64,
    /// Times that it got a CPU.
    pub times: u64,
}

/// Time that tasks stood waiting for a resource, in microseconds since the machine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Some task did.
    pub some_us: Option<u64>,
    /// All tasks did.
    pub full_us: Option<u64>,
}

/// A line of a thread is shorter: fifty numbers and a name.
const LONGEST_LINE: usize = 2048;

impl Procfs {
    /// That of a machine whose file systems are below `root`.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        Self(root.join("proc").to_string_lossy().into_owned().into())
    }

    /// All processes, in order.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        files::numbered((*self.0).as_ref(), "").unwrap_or_default()
    }

    /// The threads of a process, in order; none of one that has exited.
    #[must_use]
    pub fn threads(&self, pid: u32) -> Vec<u32> {
        self.threads_of(pid).unwrap_or_default()
    }

    /// The same, with the error.
    ///
    /// # Errors
    /// The folder of a process that is there cannot be read.
    pub fn threads_of(&self, pid: u32) -> Result<Vec<u32>, ProcError> {
        let path = self.path(pid, "task");
        let threads = files::numbered(&path, "");
        let threads = threads.map_err(|error| ProcError::unreadable(&path, &error));
        Ok(there(threads)?.unwrap_or_default())
    }

    /// Whether there is a process of this number, or a thread.
    #[must_use]
    pub fn has(&self, pid: u32) -> bool {
        self.path(pid, "").exists()
    }

    /// The process of a thread.
    #[must_use]
    pub fn process_of(&self, tid: u32) -> Option<u32> {
        Some(self.status(tid)?.process)
    }

    /// The processes that a process's threads have started and that are there.
    #[must_use]
    pub fn children(&self, pid: u32) -> Vec<u32> {
        let of = |tid: u32| self.text(&format!("{pid}/task/{tid}/children")).ok();
        let texts: Vec<String> = self.threads(pid).into_iter().filter_map(of).collect();
        let all = texts.iter().flat_map(|text| text.split_whitespace());
        all.filter_map(|number| number.parse().ok()).collect()
    }

    /// The name of a process or a thread. A program may choose any bytes.
    #[must_use]
    pub fn name(&self, tid: u32) -> Option<String> {
        self.name_of(tid).ok().flatten()
    }

    /// The same, with the error.
    ///
    /// # Errors
    /// It is there and its name cannot be read.
    pub fn name_of(&self, tid: u32) -> Result<Option<String>, ProcError> {
        let text = there(self.text(&format!("{tid}/comm")))?;
        Ok(text.map(|text| text.trim_end().to_owned()))
    }

    /// What a process or a thread is.
    #[must_use]
    pub fn status(&self, pid: u32) -> Option<Status> {
        self.status_of(pid).ok().flatten()
    }

    /// The same, with the error.
    ///
    /// # Errors
    /// It is there, and its file cannot be read or understood.
    pub fn status_of(&self, pid: u32) -> Result<Option<Status>, ProcError> {
        there(self.read(&format!("{pid}/status"), parse::status))
    }

    /// The same of this process.
    ///
    /// # Errors
    /// The file cannot be read or understood.
    pub fn own_status(&self) -> Result<Status, ProcError> {
        self.read("self/status", parse::status)
    }

    /// The control group of a process in the unified hierarchy.
    #[must_use]
    pub fn control_group(&self, pid: u32) -> Option<String> {
        let text = self.text(&format!("{pid}/cgroup")).ok()?;
        let group = text.lines().find_map(|line| line.strip_prefix("0::"))?;
        Some(group.to_owned())
    }

    /// How many threads there are on the machine.
    #[must_use]
    pub fn thread_count(&self) -> Option<usize> {
        let loads = self.text("loadavg").ok()?;
        let field = loads.split_whitespace().nth(3)?;
        field.split_once('/')?.1.parse().ok()
    }

    /// The number that the kernel has given last to a thread.
    #[must_use]
    pub fn newest(&self) -> Option<u32> {
        let loads = self.text("loadavg").ok()?;
        loads.split_whitespace().last()?.parse().ok()
    }

    /// Whether a thread has exited, and may be a zombie.
    #[must_use]
    pub fn has_exited(&self, tid: u32) -> bool {
        self.process_stat(tid).is_none_or(|stat| stat.zombie)
    }

    /// The file that a process executes; nothing of another user's.
    #[must_use]
    pub fn executable(&self, pid: u32) -> Option<PathBuf> {
        std::fs::read_link(self.executable_link(pid)).ok()
    }

    /// A link to it, which leads to the file even where its path does not any more.
    #[must_use]
    pub fn executable_link(&self, pid: u32) -> PathBuf {
        self.path(pid, "exe")
    }

    /// The same by number, which an `exec` changes.
    #[must_use]
    pub fn executable_id(&self, pid: u32) -> Option<FileId> {
        let file = self.executable_metadata(pid)?;
        Some((file.dev(), file.ino()))
    }

    #[must_use]
    pub fn executable_metadata(&self, pid: u32) -> Option<Metadata> {
        std::fs::metadata(self.executable_link(pid)).ok()
    }

    /// The user whose a process is.
    #[must_use]
    pub fn owner(&self, pid: u32) -> Option<u32> {
        Some(std::fs::metadata(self.path(pid, "")).ok()?.uid())
    }

    /// A link to what is behind a descriptor of a process.
    #[must_use]
    pub fn descriptor(&self, pid: u32, number: RawFd) -> PathBuf {
        self.path(pid, &format!("fd/{number}"))
    }

    /// The same of this process.
    #[must_use]
    pub fn own_descriptor(&self, number: RawFd) -> PathBuf {
        PathBuf::from(format!("{}/self/fd/{number}", self.0))
    }

    /// On which mount an open file of this process lies.
    #[must_use]
    pub fn mount_of(&self, file: RawFd) -> Option<u64> {
        let text = self.text(&format!("self/fdinfo/{file}")).ok()?;
        field(&text, "mnt_id")?.parse().ok()
    }

    /// Whether this process sees threads by the numbers that they have inside the kernel: those of the outermost namespace.
    #[must_use]
    pub fn in_outermost_namespace(&self) -> bool {
        const OUTERMOST: &str = "pid:[4026531836]";
        let namespace = std::fs::read_link(Path::new(&*self.0).join("self/ns/pid"));
        namespace.is_ok_and(|namespace| namespace.as_os_str() == OUTERMOST)
    }

    /// What a thread does; nothing of one that has exited, or is about to.
    #[must_use]
    pub fn stat(&self, pid: u32, tid: u32) -> Option<Stat> {
        let stat = self.line(format_args!("{pid}/task/{tid}/stat")).ok()?;
        (!stat.zombie && !stat.exiting).then_some(stat)
    }

    /// What a process or a thread does, a zombie included. Of a process these are the sums of its threads.
    #[must_use]
    pub fn process_stat(&self, pid: u32) -> Option<Stat> {
        self.line(format_args!("{pid}/stat")).ok()
    }

    /// What the calling thread does.
    ///
    /// # Errors
    /// The file cannot be read or understood.
    pub fn own_stat(&self) -> Result<Stat, ProcError> {
        self.line(format_args!("thread-self/stat"))
    }

    /// The number by which a thread knows itself, and when it was started: what it is to programs of its own container.
    #[must_use]
    pub fn identity(&self, tid: u32) -> Option<(u32, u64)> {
        Some((
            self.status(tid)?.own_number?,
            self.process_stat(tid)?.started,
        ))
    }

    fn line(&self, file: std::fmt::Arguments<'_>) -> Result<Stat, ProcError> {
        // Of some threads this is asked every period: no memory is asked for, and no more of the kernel than one reading.
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

    /// Sums of a thread that is alive, where the kernel keeps them.
    #[must_use]
    pub fn sums(&self, tid: u32) -> Option<Sums> {
        self.read(&format!("{tid}/schedstat"), parse::sums).ok()
    }

    /// The same of this process's first thread.
    ///
    /// # Errors
    /// The kernel keeps none.
    pub fn own_sums(&self) -> Result<Sums, ProcError> {
        self.read("self/schedstat", parse::sums)
    }

    /// How long tasks stood waiting for `cpu`, `memory` or `io`.
    ///
    /// # Errors
    /// The kernel does not keep it, or the file cannot be understood.
    pub fn pressure(&self, resource: &str) -> Result<Pressure, ProcError> {
        self.read(&format!("pressure/{resource}"), parse::pressure)
    }

    /// Clock ticks in which each CPU ran something.
    #[must_use]
    pub fn busy_ticks(&self) -> Vec<(CpuId, f64)> {
        let stat = self.text("stat").unwrap_or_default();
        stat.lines().filter_map(parse::busy_ticks).collect()
    }

    /// What the kernel says of the processors, a block of `name: value` lines each.
    #[must_use]
    pub fn cpuinfo(&self) -> String {
        self.text("cpuinfo").unwrap_or_default()
    }

    /// A setting of the kernel, as `sysctl kernel.NAME` shows it; one without content counts as absent.
    #[must_use]
    pub fn setting(&self, name: &str) -> Option<String> {
        let text = self.text(&format!("sys/kernel/{name}")).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// Whether the kernel knows a file system.
    #[must_use]
    pub fn knows_file_system(&self, name: &str) -> bool {
        let known = self.text("filesystems").unwrap_or_default();
        known
            .lines()
            .any(|line| line.split_whitespace().last() == Some(name))
    }

    /// What distinguishes one start of the machine from another.
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

/// The value of a line `name: value`.
#[must_use]
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(key, _)| key.trim() == name)?;
    Some(value.trim())
}

/// Nothing where the process or the thread is not there any more.
fn there<T>(read: Result<T, ProcError>) -> Result<Option<T>, ProcError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_absent => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
