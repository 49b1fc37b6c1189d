//! Entries of a journal: one per change, each with one line of text.
//!
//! An attribute of threads has two kinds of entries. `affinity PID TID STARTED SESSION CPUS` is written before a thread's mask
//! is changed for the first time. `affinity-set CPUS` is written before a mask is first set on any thread. The entries `nice`,
//! `clamp` and `sched-policy` have the same form.
//!
//! `line BEFORE SET FILE` is written before a line is written to a file of the kernel, with blanks in lines encoded as `\s`.
//! `group FOLDER` is written before a resctrl group or a control group is created. `helper PID STARTED` is written after a
//! process was started that must not outlive its parent. `stopped PID STARTED` is written before a process is stopped and
//! continued by signals.

use std::fmt::{self, Display};
use std::path::PathBuf;
use std::str::FromStr;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::placement::Clamp;

use countersteer_sysfs::task::sched_policy::SchedPolicy;

/// Thread with the value of an attribute before its first change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Touched<V> {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// Start time of the thread in clock ticks since boot, which identifies the thread together with its TID.
    pub(crate) started: u64,
    /// Session of the thread.
    pub(crate) session: u32,
    /// Former value of the attribute.
    pub(crate) value: V,
}

/// Change that is about to be made, as an entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JournalEntry {
    Affinity(Touched<CpuSet>),
    AffinitySet(CpuSet),
    Nice(Touched<i8>),
    NiceSet(i8),
    Clamp(Touched<Clamp>),
    ClampSet(Clamp),
    SchedPolicy(Touched<SchedPolicy>),
    SchedPolicySet(SchedPolicy),
    Line {
        file: PathBuf,
        before: String,
        set: String,
    },
    Group(PathBuf),
    Helper(ProcessIdentity),
    Stopped(ProcessIdentity),
}

/// Process, identified by PID and start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProcessIdentity {
    pub(crate) pid: u32,
    /// Start time of the process, in clock ticks since boot.
    pub(crate) started: u64,
}

/// Type of an attribute's value, with a text form without blanks.
pub(crate) trait AttributeValue: Clone + Ord {
    fn text(&self) -> String;
    fn parse(text: &str) -> Option<Self>;
}

impl AttributeValue for CpuSet {
    fn text(&self) -> String {
        self.to_string()
    }

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl AttributeValue for i8 {
    fn text(&self) -> String {
        self.to_string()
    }

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl AttributeValue for Clamp {
    fn text(&self) -> String {
        format!("{}-{}", self.least, self.most)
    }

    fn parse(text: &str) -> Option<Self> {
        let (least, most) = text.split_once('-')?;
        Some(Self {
            least: least.parse().ok()?,
            most: most.parse().ok()?,
        })
    }
}

impl AttributeValue for SchedPolicy {
    fn text(&self) -> String {
        self.0.to_string()
    }

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }
}

impl<V: AttributeValue> Display for Touched<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pid,
            tid,
            started,
            session,
            value,
        } = self;
        write!(f, "{pid} {tid} {started} {session} {}", value.text())
    }
}

impl Display for JournalEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Affinity(touched) => write!(f, "affinity {touched}"),
            Self::AffinitySet(cpus) => write!(f, "affinity-set {}", cpus.text()),
            Self::Nice(touched) => write!(f, "nice {touched}"),
            Self::NiceSet(nice) => write!(f, "nice-set {nice}"),
            Self::Clamp(touched) => write!(f, "clamp {touched}"),
            Self::ClampSet(clamp) => write!(f, "clamp-set {}", clamp.text()),
            Self::SchedPolicy(touched) => write!(f, "sched-policy {touched}"),
            Self::SchedPolicySet(policy) => write!(f, "sched-policy-set {}", policy.text()),
            Self::Line { file, before, set } => {
                let [before, set] = [before, set].map(|line| line.replace(' ', "\\s"));
                write!(f, "line {before} {set} {}", file.display())
            }
            Self::Group(folder) => write!(f, "group {}", folder.display()),
            Self::Helper(process) => write!(f, "helper {} {}", process.pid, process.started),
            Self::Stopped(process) => write!(f, "stopped {} {}", process.pid, process.started),
        }
    }
}

/// Error: a line is no entry, because it is malformed or of another version.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoEntry;

impl FromStr for JournalEntry {
    type Err = NoEntry;

    fn from_str(line: &str) -> Result<Self, NoEntry> {
        parse(line).ok_or(NoEntry)
    }
}

fn parse(line: &str) -> Option<JournalEntry> {
    let (kind, rest) = line.split_once(' ')?;
    Some(match kind {
        "affinity" => JournalEntry::Affinity(touched(rest)?),
        "affinity-set" => JournalEntry::AffinitySet(AttributeValue::parse(rest)?),
        "nice" => JournalEntry::Nice(touched(rest)?),
        "nice-set" => JournalEntry::NiceSet(AttributeValue::parse(rest)?),
        "clamp" => JournalEntry::Clamp(touched(rest)?),
        "clamp-set" => JournalEntry::ClampSet(AttributeValue::parse(rest)?),
        "sched-policy" => JournalEntry::SchedPolicy(touched(rest)?),
        "sched-policy-set" => JournalEntry::SchedPolicySet(AttributeValue::parse(rest)?),
        "line" => {
            let mut words = rest.splitn(3, ' ');
            let mut text = || Some(words.next()?.replace("\\s", " "));
            JournalEntry::Line {
                before: text()?,
                set: text()?,
                file: words.next()?.into(),
            }
        }
        "group" => JournalEntry::Group(rest.into()),
        "helper" => JournalEntry::Helper(process(rest)?),
        "stopped" => JournalEntry::Stopped(process(rest)?),
        _ => return None,
    })
}

fn process(text: &str) -> Option<ProcessIdentity> {
    let (pid, started) = text.split_once(' ')?;
    Some(ProcessIdentity {
        pid: pid.parse().ok()?,
        started: started.parse().ok()?,
    })
}

fn touched<V: AttributeValue>(text: &str) -> Option<Touched<V>> {
    let words: Vec<&str> = text.split(' ').collect();
    let [pid, tid, started, session, value] = *words.as_slice() else {
        return None;
    };
    Some(Touched {
        pid: pid.parse().ok()?,
        tid: tid.parse().ok()?,
        started: started.parse().ok()?,
        session: session.parse().ok()?,
        value: V::parse(value)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched<V>(value: V) -> Touched<V> {
        Touched {
            pid: 7,
            tid: 8,
            started: 99,
            session: 3,
            value,
        }
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let cpus: CpuSet = "0-3,9".parse().unwrap();
        let entries = [
            (
                JournalEntry::Affinity(touched(cpus.clone())),
                "affinity 7 8 99 3 0-3,9",
            ),
            (JournalEntry::AffinitySet(cpus), "affinity-set 0-3,9"),
            (JournalEntry::Nice(touched(-2)), "nice 7 8 99 3 -2"),
            (JournalEntry::NiceSet(4), "nice-set 4"),
            (
                JournalEntry::Clamp(touched(Clamp::FREE)),
                "clamp 7 8 99 3 0-1024",
            ),
            (
                JournalEntry::ClampSet(Clamp::at_most(400)),
                "clamp-set 0-400",
            ),
            (
                JournalEntry::SchedPolicy(touched(SchedPolicy(0x4000_0003))),
                "sched-policy 7 8 99 3 1073741827",
            ),
            (
                JournalEntry::SchedPolicySet(SchedPolicy(7)),
                "sched-policy-set 7",
            ),
            (
                JournalEntry::Line {
                    file: "/sys/cpu 3/preference".into(),
                    before: "balance_power".into(),
                    set: "two words".into(),
                },
                "line balance_power two\\swords /sys/cpu 3/preference",
            ),
            (
                JournalEntry::Group("/sys/fs/resctrl/countersteer-7 share0".into()),
                "group /sys/fs/resctrl/countersteer-7 share0",
            ),
            (
                JournalEntry::Helper(ProcessIdentity {
                    pid: 9,
                    started: 100,
                }),
                "helper 9 100",
            ),
            (
                JournalEntry::Stopped(ProcessIdentity {
                    pid: 9,
                    started: 100,
                }),
                "stopped 9 100",
            ),
        ];
        for (entry, text) in entries {
            assert_eq!(entry.to_string(), text);
            assert_eq!(text.parse(), Ok(entry));
        }
    }

    #[test]
    fn what_is_cut_off_or_of_another_version_is_no_entry() {
        for line in ["", "affinity 7 8 99 3", "mask 1", "nice-set x", "helper 9"] {
            assert_eq!(line.parse::<JournalEntry>(), Err(NoEntry), "{line}");
        }
    }
}
