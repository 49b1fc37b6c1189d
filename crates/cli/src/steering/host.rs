//! Processes of the whole host that rules cover.
//!
//! Input: rules, /proc. Output: current root processes. A process is checked when it is new, and again every few seconds, because
//! names and control groups change.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use countersteer_live::placer::Root;
use countersteer_model::rules::{Process, Rules};
use countersteer_model::units::ProgramId;
use countersteer_sysfs::procfs::PROC;

/// Interval after which a process is checked again.
const AGAIN: Duration = Duration::from_secs(5);

/// Maximum interval between scans of /proc on a quiet host; a scan's cost grows with the number of threads.
const AROUND: Duration = Duration::from_millis(500);

/// A process that was checked.
struct Known {
    root: Option<Root>,
    looked: Instant,
}

pub struct Host {
    rules: Rules,
    users: BTreeMap<u32, String>,
    known: BTreeMap<u32, Known>,
    next: u32,
    /// Last PID that the kernel had assigned.
    newest: Option<u32>,
    /// True if no PID was assigned just before the last scan, to a process that was not visible yet.
    settled: bool,
    /// Time of the last scan of /proc.
    read: Option<Instant>,
}

impl Host {
    /// Creates a search with these rules.
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

    /// All processes that the rules cover now.
    pub fn find(&mut self) -> Vec<Root> {
        let now = Instant::now();
        if self.is_due(now) {
            self.look_around(now);
        }
        self.known.values().filter_map(|k| k.root.clone()).collect()
    }

    /// True if processes may have started since the last scan of /proc, or if it was long ago.
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
                // A process that is still covered keeps its identity, even if its name changed.
                let before = known.and_then(|k| k.root.clone());
                let root = self.look(pid).map(|new| before.unwrap_or(new));
                self.known.insert(pid, Known { root, looked: now });
            }
        }
    }

    fn look(&mut self, pid: u32) -> Option<Root> {
        // The first process and this one are never touched.
        if pid == 1 || pid == std::process::id() {
            return None;
        }
        let name = PROC.name(pid)?;
        // Kernel threads have no memory of their own.
        let status = PROC.status(pid).filter(|status| status.has_memory)?;
        let uid = status.users.get(1).copied()?;
        // This process's cleanup process.
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
        let process = Process {
            name: name.clone(),
            users,
            cgroup,
        };
        if !self.rules.covers(&process) {
            return None;
        }
        self.next += 1;
        Some(Root {
            pid,
            program: ProgramId(self.next),
            name: format!("{name}#{pid}").into(),
        })
    }
}

/// User names by UID, from /etc/passwd.
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
        let mut host = Host::new(Rules::parse("rules.toml", text).unwrap());
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
