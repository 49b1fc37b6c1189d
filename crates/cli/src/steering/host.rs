//! Processes of the whole host that rules cover.
//!
//! Input: rules, /proc. Output: roots, as they come and go. A process is looked at when it is new, and again every few seconds,
//! since names and control groups change.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use countersteer_live::placer::Root;
use countersteer_model::rules::{Process, Rules};
use countersteer_model::units::ProgramId;
use countersteer_sysfs::procfs::PROC;

/// How often a process is looked at again.
const AGAIN: Duration = Duration::from_secs(5);

/// How often /proc is read at least, however quiet the host: reading it costs the more the more threads there are.
const AROUND: Duration = Duration::from_millis(500);

/// A process that was looked at.
struct Known {
    root: Option<Root>,
    looked: Instant,
}

pub struct Host {
    rules: Rules,
    users: BTreeMap<u32, String>,
    known: BTreeMap<u32, Known>,
    next: u32,
    /// The number that the kernel had given last.
    newest: Option<u32>,
    /// None was given just before /proc was read, to somebody who was not to be seen there yet.
    settled: bool,
    /// When /proc was read last.
    read: Option<Instant>,
}

impl Host {
    /// A search by these rules.
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

    /// All processes that are covered now.
    pub fn find(&mut self) -> Vec<Root> {
        let now = Instant::now();
        if self.is_due(now) {
            self.look_around(now);
        }
        self.known.values().filter_map(|k| k.root.clone()).collect()
    }

    /// Whether there may be processes that were not there when /proc was read last, or it was long ago.
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
                // One that is still covered stays who it was, whatever it is called now.
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
        // Threads of the kernel have no memory of their own.
        let status = PROC.status(pid).filter(|status| status.has_memory)?;
        let uid = status.users.get(1).copied()?;
        // Its cleanup process.
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

/// Names by number, as /etc/passwd has them.
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
        // The search passes over this process's own children, but not theirs.
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
