//! Tests of hints and cache partitions on a fake root, with a placer that places no thread.

use std::cell::RefCell;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use countersteer_model::machine::Machine;
use countersteer_model::placement::{
    CacheShare, ClockLimit, Members, Reason, Target, ThreadPlacement, Ways,
};
use countersteer_model::topology::GroupBy;
use countersteer_model::units::{CpuId, GroupId, ProgramId, ThreadId};
use countersteer_sysfs::resctrl::testing::Pretend;

use super::*;
use crate::undo::restore::{self, restore};

const MACHINE: &str = include_str!("../../../../machines/xeon-x5365-2-2.toml");

/// Resources with the threads that have them.
struct Held {
    resources: Resources,
    journal: Journal,
    topology: Arc<Topology>,
    threads: Vec<ThreadInfo>,
}

impl Held {
    fn note(&mut self) {
        self.resources.note(&self.threads, &mut self.journal);
    }

    /// Number of unsupported requests of a placement.
    fn apply(&mut self, placement: &Placement) -> u32 {
        let Self {
            resources, journal, ..
        } = self;
        resources.apply(placement, &self.threads, journal)
    }

    fn let_go(&mut self, program: u32) {
        let threads = std::mem::take(&mut self.threads).into_iter();
        let (gone, rest): (Vec<_>, Vec<_>) = threads.partition(|t| t.program.0 == program);
        self.threads = rest;
        self.resources.let_go(&gone);
    }

    fn said(&self) -> &BTreeSet<String> {
        &self.resources.said
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        restore::close(&self.journal, self.resources.undoing());
    }
}

/// Clamps as a kernel would keep them.
#[derive(Clone, Default)]
struct Kept(Rc<RefCell<BTreeMap<u32, Clamp>>>);

impl Clamps for Kept {
    fn get(&self, tid: u32) -> std::io::Result<Clamp> {
        Ok(self.0.borrow().get(&tid).copied().unwrap_or(Clamp::FREE))
    }

    fn set(&self, tid: u32, clamp: Clamp) -> std::io::Result<()> {
        self.0.borrow_mut().insert(tid, clamp);
        Ok(())
    }
}

struct Without;

impl Clamps for Without {
    fn get(&self, _: u32) -> std::io::Result<Clamp> {
        Ok(Clamp { least: 0, most: 0 })
    }

    fn set(&self, _: u32, _: Clamp) -> std::io::Result<()> {
        Err(std::io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
}

/// Process that does nothing and ends with the test.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        let mut command = Command::new("sleep");
        Self(
            command
                .arg("60")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    fn tid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn write(root: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

fn read(root: &Path, path: &str) -> String {
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// Threads of a program each, on CPU 0 and up.
fn held(root: &Path, tids: &[u32], clamps: Box<dyn Clamps>) -> Held {
    let topology = Arc::new(Topology::new(&Machine::parse("m", MACHINE).unwrap()));
    let numbers = CpuNumbers::new(topology.cpus.iter().map(|c| c.id).collect());
    let info = |(row, tid): (usize, &u32)| ThreadInfo {
        id: ThreadId(*tid),
        program: ProgramId(row as u32),
        name: "p".into(),
        cpu: CpuId(row as u32),
        runnable: true,
        nice: 0,
        allowed: Arc::new(std::iter::once(CpuId(row as u32)).collect()),
        hint: None,
    };
    let mut threads: Vec<ThreadInfo> = tids.iter().enumerate().map(info).collect();
    threads.sort_by_key(|t| t.id);
    let journals = root.join("journals");
    let root = root.to_owned();
    let config = ResourceConfig {
        topology: Arc::clone(&topology),
        numbers,
        root,
        say: |_| {},
    };
    let mut held = Held {
        resources: Resources::over(config, clamps),
        journal: Journal::create(&journals).unwrap(),
        topology,
        threads,
    };
    held.note();
    held
}

fn hint(hints: &[(u32, Clamp)]) -> Placement {
    let place = |(tid, clamp): &(u32, Clamp)| ThreadPlacement {
        clamp: Some(*clamp),
        ..ThreadPlacement::new(ThreadId(*tid), Target::Anywhere, Reason::rule("test"))
    };
    Placement {
        threads: hints.iter().map(place).collect(),
        ..Placement::default()
    }
}

fn caches(classes: &[(&str, u32, u32)], llc: GroupId) -> Placement {
    let class = |(name, program, ways): &(&str, u32, u32)| WayClass {
        name: name.to_string().into(),
        members: Members::Programs(vec![ProgramId(*program)]),
        shares: vec![CacheShare {
            llc,
            ways: Some(Ways {
                first: None,
                count: *ways,
            }),
            bandwidth: Some(25),
        }],
    };
    Placement {
        caches: Some(classes.iter().map(class).collect()),
        ..Placement::default()
    }
}

#[test]
fn hints_are_set_respected_and_restored() {
    let root = tempfile::tempdir().unwrap();
    let kept = Kept::default();
    let one = Sleeper::start();
    let two = Sleeper::start();
    let foreign = Clamp {
        least: 5,
        most: 900,
    };
    kept.set(two.tid(), foreign).unwrap();
    let mut had = held(root.path(), &[one.tid(), two.tid()], Box::new(kept.clone()));
    assert_eq!(had.apply(&hint(&[(one.tid(), Clamp::FREE)])), 0);
    let journalled = had.journal.changes().entries();
    assert!(
        journalled.is_empty(),
        "nothing is asked for yet: {journalled:?}"
    );
    let both = [(one.tid(), Clamp::FULL), (two.tid(), Clamp::at_most(400))];
    assert_eq!(had.apply(&hint(&both)), 0);
    assert_eq!(
        (kept.get(one.tid()).unwrap(), kept.get(two.tid()).unwrap()),
        (Clamp::FULL, Clamp::at_most(400))
    );
    assert_eq!(
        std::fs::read_dir(root.path().join("journals"))
            .unwrap()
            .count(),
        1
    );
    had.apply(&hint(&[(two.tid(), Clamp::FREE)]));
    assert_eq!(
        kept.get(two.tid()).unwrap(),
        foreign,
        "what it had, not nothing"
    );
    had.apply(&hint(&[(two.tid(), Clamp::FULL)]));
    had.let_go(1);
    assert_eq!(
        kept.get(two.tid()).unwrap(),
        foreign,
        "who is let go has what it had"
    );
    let others = Clamp { least: 1, most: 2 };
    kept.set(one.tid(), others).unwrap();
    assert_eq!(had.apply(&hint(&[(one.tid(), Clamp::at_most(3))])), 1);
    had.apply(&hint(&[(two.tid(), Clamp::FULL)]));
    drop(had);
    assert_eq!(
        (kept.get(one.tid()).unwrap(), kept.get(two.tid()).unwrap()),
        (others, foreign)
    );
    assert_eq!(
        std::fs::read_dir(root.path().join("journals"))
            .unwrap()
            .count(),
        0
    );
}

const PREFERENCE: &str = "sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference";
const OTHER: &str = "sys/devices/system/cpu/cpu1/cpufreq/energy_performance_preference";

#[test]
fn energy_preferences_follow_hints_and_survive_a_kill() {
    let root = tempfile::tempdir().unwrap();
    let one = Sleeper::start();
    let two = Sleeper::start();
    let mut had = held(root.path(), &[one.tid(), two.tid()], Box::new(Without));
    let both = hint(&[(one.tid(), Clamp::FULL), (two.tid(), Clamp::at_most(400))]);
    assert_eq!(had.apply(&both), 2, "neither clamps nor preferences");
    assert_eq!(had.said().len(), 1, "said once: {:?}", had.said());
    drop(had);
    for cpu in [PREFERENCE, OTHER] {
        let offered = cpu.replace(
            "performance_preference",
            "performance_available_preferences",
        );
        write(
            root.path(),
            &[
                (cpu, "balance_performance\n"),
                (&offered, "performance balance_performance power \n"),
            ],
        );
    }
    let mut had = held(root.path(), &[one.tid(), two.tid()], Box::new(Without));
    assert_eq!(had.apply(&both), 0);
    had.note();
    assert_eq!(
        (&*read(root.path(), PREFERENCE), &*read(root.path(), OTHER)),
        ("performance", "power")
    );
    // State after a kill: the files, and a journal without a lock.
    let journals = root.path().join("journals");
    let journal = std::fs::read_dir(&journals)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let text = std::fs::read_to_string(journal).unwrap();
    had.apply(&hint(&[(one.tid(), Clamp::FREE)]));
    had.note();
    assert_eq!(read(root.path(), PREFERENCE), "balance_performance");
    drop(had);
    assert_eq!(read(root.path(), OTHER), "balance_performance\n");
    write(
        root.path(),
        &[(PREFERENCE, "performance\n"), (OTHER, "somebody's\n")],
    );
    let group = root.path().join("resctrl/countersteer-1-share0");
    std::fs::create_dir_all(&group).unwrap();
    let foreign = root.path().join("resctrl/somebody");
    std::fs::create_dir_all(&foreign).unwrap();
    let groups = format!("group {}\ngroup {}\n", group.display(), foreign.display());
    std::fs::write(journals.join("killed.journal"), text + &groups).unwrap();
    let restored = restore(&journals).unwrap();
    assert_eq!(
        (restored.journals, restored.hints, restored.failed),
        (1, 2, 0),
        "{restored:?}"
    );
    assert_eq!(read(root.path(), PREFERENCE), "balance_performance\n");
    assert_eq!(read(root.path(), OTHER), "somebody's\n");
    assert!(!group.exists() && foreign.exists(), "groups of others stay");
}

/// Two clocks: that of CPUs 0 and 1, and that of CPU 2, whose frequencies are listed.
fn with_cpufreq(root: &Path) {
    for (policy, cpus) in [(0, &[0, 1][..]), (2, &[2][..])] {
        let at = |name: &str| format!("sys/devices/system/cpu/cpufreq/policy{policy}/{name}");
        write(
            root,
            &[
                (&at("scaling_max_freq"), "3600000\n"),
                (&at("cpuinfo_min_freq"), "800000\n"),
            ],
        );
        if policy == 2 {
            let listed = at("scaling_available_frequencies");
            write(root, &[(&listed, "3600000 2000000 1200000 \n")]);
        }
        for cpu in cpus {
            let folder = root.join(format!("sys/devices/system/cpu/cpu{cpu}"));
            std::fs::create_dir_all(&folder).unwrap();
            let to = format!("../cpufreq/policy{policy}");
            std::os::unix::fs::symlink(to, folder.join("cpufreq")).unwrap();
        }
    }
}

fn limits(of: &[(u32, u32)]) -> Placement {
    let limit = |(cpu, most_mhz): &(u32, u32)| ClockLimit {
        cpu: CpuId(*cpu),
        most_mhz: *most_mhz,
        reason: Reason::default(),
    };
    Placement {
        clocks: Some(of.iter().map(limit).collect()),
        ..Placement::default()
    }
}

#[test]
fn limits_on_frequencies_are_those_of_the_hardware_and_are_gone_afterwards() {
    let root = tempfile::tempdir().unwrap();
    let file =
        |policy: u32| format!("sys/devices/system/cpu/cpufreq/policy{policy}/scaling_max_freq");
    let mut had = held(root.path(), &[], Box::new(Kept::default()));
    assert_eq!(had.apply(&limits(&[(0, 1500)])), 1);
    assert!(had.said().iter().any(|s| s.contains("no cpufreq folder")));
    with_cpufreq(root.path());
    let now = |policy| read(root.path(), &file(policy));
    let both = [(0, 2500), (1, 1500), (2, 1900)];
    assert_eq!(had.apply(&limits(&both)), 0, "{:?}", had.said());
    assert_eq!((&*now(0), &*now(2)), ("1500000\n", "1200000\n"));
    had.apply(&limits(&[(0, 2500), (2, 1)]));
    assert_eq!((&*now(0), &*now(2)), ("2500000\n", "1200000\n"));
    // A limit above the former one is none.
    had.apply(&limits(&[(0, 5000), (2, 1)]));
    assert_eq!(now(0), "3600000\n");
    had.apply(&limits(&[(0, 500), (2, 1)]));
    assert_eq!(now(0), "800000\n");
    // State after a kill: the files, and a journal without a lock.
    let journals = root.path().join("journals");
    let journal = std::fs::read_dir(&journals).unwrap().next().unwrap();
    let text = std::fs::read_to_string(journal.unwrap().path()).unwrap();
    drop(had);
    assert_eq!((&*now(0), &*now(2)), ("3600000\n", "3600000\n"));
    write(
        root.path(),
        &[(&file(0), "800000\n"), (&file(2), "900000\n")],
    );
    std::fs::write(journals.join("killed.journal"), text).unwrap();
    let restored = restore(&journals).unwrap();
    assert_eq!((restored.hints, restored.failed), (1, 0), "{restored:?}");
    assert_eq!(now(0), "3600000\n");
    assert_eq!(now(2), "900000\n", "another user's stays");
}

#[test]
fn a_limit_that_is_refused_is_reported_and_the_others_hold() {
    let root = tempfile::tempdir().unwrap();
    with_cpufreq(root.path());
    let mut had = held(root.path(), &[], Box::new(Kept::default()));
    let folder = root.path().join("sys/devices/system/cpu/cpufreq/policy2");
    assert_eq!(had.apply(&limits(&[(2, 2000)])), 0);
    // A file that can be neither written nor read any more, for root neither.
    let file = folder.join("scaling_max_freq");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert_eq!(had.apply(&limits(&[(0, 900), (2, 1300)])), 1);
    let said = had.said();
    assert!(
        said.iter().any(|s| s.contains("limit of 1200 MHz")),
        "{said:?}"
    );
    let other = "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq";
    assert_eq!(read(root.path(), other), "900000\n");
    drop(had);
    assert_eq!(read(root.path(), other), "3600000\n");
}

fn with_resctrl(root: &Path) {
    let info = "sys/fs/resctrl/info";
    write(
        root,
        &[
            (&format!("{info}/L3/cbm_mask"), "ffff\n"),
            (&format!("{info}/L3/min_cbm_bits"), "2\n"),
            (&format!("{info}/MB/min_bandwidth"), "10\n"),
            (&format!("{info}/MB/bandwidth_gran"), "5\n"),
            (&format!("{info}/L3/num_closids"), "3\n"),
            (
                "sys/fs/resctrl/schemata",
                "    MB:4=100;7=100\n    L3:4=ffff;7=ffff\n",
            ),
        ],
    );
    let topology = Topology::new(&Machine::parse("m", MACHINE).unwrap());
    let last = topology.groups_by(GroupBy::Llc)[1].cpus.clone();
    for cpu in &topology.cpus {
        let index = format!("sys/devices/system/cpu/cpu{}/cache/index3", cpu.id.0);
        let id = if last.contains(cpu.id) { "7\n" } else { "4\n" };
        write(
            root,
            &[
                (&format!("{index}/level"), "3\n"),
                (&format!("{index}/id"), id),
            ],
        );
    }
}

#[test]
fn caches_are_divided_by_groups_that_are_gone_afterwards() {
    let root = tempfile::tempdir().unwrap();
    with_resctrl(root.path());
    let mount = root.path().join("sys/fs/resctrl");
    std::fs::create_dir(mount.join("somebody")).unwrap();
    std::fs::write(mount.join("somebody/tasks"), "72\n").unwrap();
    let mut had = held(root.path(), &[70, 71, 72], Box::new(Kept::default()));
    let topology = Arc::clone(&had.topology);
    let llc = topology.groups_by(GroupBy::Llc)[1].id;
    let pretend = ResourceShares::open(
        root.path(),
        &topology,
        &had.resources.config.numbers,
        Resctrl::over(root.path(), Box::new(Pretend::new(2))),
    );
    had.resources.shares = Some(Some(pretend.unwrap()));
    let classes = [("a", 0, 3), ("b", 1, 8), ("c", 2, 4)];
    let unsupported = had.apply(&caches(&classes[..2], llc));
    assert_eq!(unsupported, 0, "{:?}", had.said());
    had.note();
    let group = |n: u32| {
        format!(
            "sys/fs/resctrl/countersteer-{}-share{n}",
            std::process::id()
        )
    };
    let schemata = |n| read(root.path(), &format!("{}/schemata", group(n)));
    let ways = topology.caches[1].ways;
    let of = |first: u32, count: u32| {
        let scale = |n: u32| (n * 16 + ways / 2) / ways;
        ((1_u32 << scale(count).max(2)) - 1) << scale(first)
    };
    assert_eq!(
        schemata(0),
        format!("L3:4=ffff;7={:x}\nMB:4=100;7=25\n", of(0, 3))
    );
    assert_eq!(
        schemata(1),
        format!("L3:4=ffff;7={:x}\nMB:4=100;7=25\n", of(3, 8))
    );
    assert_eq!(read(root.path(), &format!("{}/tasks", group(0))), "70\n");
    let unsupported = had.apply(&caches(&classes, llc));
    assert_eq!(unsupported, 1, "no more groups");
    assert!(
        had.said().iter().any(|s| s.contains("distinguishes 3")),
        "{:?}",
        had.said()
    );
    let unsupported = had.apply(&caches(&[classes[0], classes[2]], llc));
    assert_eq!(
        unsupported,
        1,
        "a thread of another process's group stays there: {:?}",
        had.said()
    );
    assert!(!root.path().join(group(1)).exists() && root.path().join(group(3)).exists());
    had.apply(&Placement {
        caches: Some(Vec::new()),
        ..Placement::default()
    });
    assert!(!root.path().join(group(0)).exists());
    had.apply(&caches(&classes[..1], llc));
    had.note();
    assert!(!mount.join("tasks").exists());
    had.let_go(0);
    assert_eq!(
        std::fs::read_to_string(mount.join("tasks")).unwrap(),
        "70\n",
        "back in the root group"
    );
    drop(had);
    let left: Vec<_> = std::fs::read_dir(mount)
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert!(
        left.iter()
            .all(|name| !name.to_string_lossy().contains("countersteer")),
        "{left:?}"
    );
}

#[test]
fn a_machine_without_resctrl_says_so_once_and_goes_on() {
    let root = tempfile::tempdir().unwrap();
    let mut had = held(root.path(), &[70], Box::new(Kept::default()));
    let llc = had.topology.groups_by(GroupBy::Llc)[0].id;
    let nothing = Placement {
        caches: Some(Vec::new()),
        ..hint(&[(std::process::id(), Clamp::FULL)])
    };
    assert_eq!(had.apply(&nothing), 0);
    assert!(
        had.said().is_empty(),
        "nothing was asked of it: {:?}",
        had.said()
    );
    for _ in 0..2 {
        assert_eq!(had.apply(&caches(&[("a", 0, 3), ("b", 1, 3)], llc)), 2);
    }
    assert_eq!(had.said().len(), 1, "{:?}", had.said());
}
