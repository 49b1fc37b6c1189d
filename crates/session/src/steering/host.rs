//! Search for the processes of the whole host that rules select.
//!
//! Input: rules, and /proc. Output: the root processes that the rules select now. A process is compared with the rules when it
//! is new, and again every few seconds, because names and control groups change.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use countersteer_live::placer::ProcessRoot;
use countersteer_model::rules::{RuledProcess, Rules};
use countersteer_model::units::ProgramId;
use countersteer_sysfs::procfs::PROC;

/// Time after which a known process is compared with the rules again.
const AGAIN: Duration = Duration::from_secs(5);

/// Maximum time between two scans of /proc if no process starts. The cost of a scan grows with the number of threads.
const AROUND: Duration = Duration::from_millis(500);

/// Cached result of comparing a process with the rules: `root` is `None` if no rule selects the process.
struct ComparedProcess {
    root: Option<ProcessRoot>,
    looked: Instant,
}

pub struct SteeringHost {
    rules: Rules,
    users: BTreeMap<u32, String>,
    known: BTreeMap<u32, ComparedProcess>,
    next: u32,
    /// PID that the kernel had assigned last at the previous call; `None` if unknown.
    newest: Option<u32>,
    /// False if new PIDs had been assigned at the previous call. /proc is then scanned once more, because the new processes may
    /// not have been visible.
    settled: bool,
    /// Time of the last scan of /proc; `None` before the first.
    read: Option<Instant>,
}

impl SteeringHost {
    /// Creates a search for the processes that these rules select.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            users: users(),
            known: BTreeMap::new(),
            next: 0,
            newest: None,
            settled: false,
            read: None,
        }
    }

    /// Returns all processes that the rules select now.
    pub fn find(&mut self) -> Vec<ProcessRoot> {
        let now = Instant::now();
        if self.is_due(now) {
            self.look_around(now);
        }
        self.known.values().filter_map(|k| k.root.clone()).collect()
    }

    /// Returns true if processes may have started since the last scan of /proc, or if the last scan was long ago.
    fn is_due(&mut self, now: Instant) -> bool {
        let newest = PROC.newest();
        let forked = std::mem::replace(&mut self.newest, newest) != newest || newest.is_none();
        let settled = std::mem::replace(&mut self.settled, !forked);
        let due = forked
            || !settled
            || self
                .read
                .is_none_or(|read| now.duration_since(read) >= AROUND);
        self.read = if due { Some(now) } else { self.read };
        due
    }

    fn look_around(&mut self, now: Instant) {
        let pids = PROC.processes();
        self.known.retain(|pid, _| pids.binary_search(pid).is_ok());
        for pid in pids {
            let known = self.known.get(&pid);
            if known.is_none_or(|k| now.duration_since(k.looked) >= AGAIN) {
                // A process that a rule still selects keeps its program ID and name, even if the process was renamed.
                let before = known.and_then(|k| k.root.clone());
                let root = self.look(pid).map(|new| before.unwrap_or(new));
                self.known
                    .insert(pid, ComparedProcess { root, looked: now });
            }
        }
    }

    fn look(&mut self, pid: u32) -> Option<ProcessRoot> {
        // The init process and this process are never steered.
        if pid == 1 || pid == std::process::id() {
            return None;
        }
        let name = PROC.name(pid)?;
        // Excludes kernel threads, which have no user memory.
        let status = PROC.status(pid).filter(|status| status.has_memory)?;
        let uid = status.users.get(1).copied()?;
        // Excludes the cleanup process that this process started.
        if status.parent == std::process::id() {
            return None;
        }
        let users = self
            .users
            .get(&uid)
            .cloned()
            .into_iter()
            .chain([uid.to_string()])
            .collect();
        let cgroup = PROC.control_group(pid).unwrap_or_else(|| "/".into());
        let process = RuledProcess {
            name: name.clone(),
            users,
            cgroup,
        };
        if !self.rules.covers(&process) {
            return None;
        }
        self.next += 1;
        Some(ProcessRoot {
            pid,
            program: ProgramId(self.next),
            name: format!("{name}#{pid}").into(),
        })
    }
}

/// Reads the user names from /etc/passwd, with UIDs as keys.
fn users() -> BTreeMap<u32, String> {
    let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        Some((fields.nth(1)?.parse().ok()?, name))
    };
    text.lines().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_new_process_is_found_at_once_and_forgotten_soon_after_its_exit() {
        let text =
            "schema = \"countersteer.rules/1\"\npolicy = \"linux\"\n[[steer]]\nname = \"*\"\n";
        let mut host = SteeringHost::new(Rules::parse("rules.toml", text).unwrap());
        let mut finds = |pid: u32| host.find().iter().any(|root| root.pid == pid);
        // The search ignores this process's own children, but not its grandchildren.
        let command = ["-c", "read line; sleep 60 & echo $!; wait"];
        let mut shell = Command::new("sh")
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        (0..3).for_each(|_| assert!(!finds(shell.id())));
        drop(shell.stdin.take());
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let pid = line.trim().parse().unwrap();
        assert!(finds(pid));
        Command::new("kill").arg(line.trim()).status().unwrap();
        shell.wait().unwrap();
        let begun = Instant::now();
        while finds(pid) {
            assert!(begun.elapsed() < 20 * AROUND, "{pid} is still there");
        }
    }
}
