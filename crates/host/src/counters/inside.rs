//! Threads that are followed and counted inside the kernel: a backend over whatever does that.
//!
//! Input: a [`Follow`], which somebody else loads into the kernel, and what it hears there. Output: notes, as the rings of counters
//! have them. Counters then run on CPUs all the time instead of being switched with threads, and a thread's birth opens none: that
//! costs less than counters of threads do, but needs more privileges.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use countersteer_core::counters::{Cumulative, Ledger, NO_TREE, Owner, Plan};
use countersteer_core::units::{CpuId, Nanos};

use super::CounterError;
use super::attention::{Attention, Wake};
use super::backend::Backend;
use super::notes::Notes;
use super::open::{GroupInfo, Places, Says};
use super::request::{Request, SPARING_NS, Target, sample_ns};
use super::sys;
use super::task_counting::{Errand, Follow, Heard, Inside, Kind};
use super::tasks;

/// How often is looked whether there is room for more threads.
const LOOK: Nanos = Nanos::from_millis(50);
/// How long is waited for the last counts of processes that have ended, and how long in between.
const PATIENCE: Nanos = Nanos::from_millis(500);
const PAUSE: std::time::Duration = std::time::Duration::from_micros(100);

/// Loads what follows threads, if it may and can; otherwise their own counters will do.
pub(super) fn follow(
    request: &Request,
    threads: usize,
    program: Option<u32>,
    inside: Inside<'_>,
) -> Result<Option<Box<dyn Follow>>, CounterError> {
    let sparing = Nanos(sample_ns(
        request.interval.map_or(u64::MAX, |i| i.0),
        SPARING_NS,
    ));
    let core_types = &request.core_types.by_cpu;
    let errand = Errand {
        sets: &request.sets,
        cpus: &request.cpus,
        core_types,
        program,
        threads,
        sparing,
    };
    let loaded = suits(request)
        .map_err(str::to_owned)
        .and_then(|()| (inside.load)(&errand));
    match loaded {
        Ok(follow) => Ok(Some(follow)),
        Err(reason) if inside.must => Err(CounterError::NotInside { reason }),
        Err(_) => Ok(None),
    }
}

fn suits(request: &Request) -> Result<(), &'static str> {
    let threads = matches!(
        request.target,
        Target::Launch(_) | Target::Processes(_) | Target::Present(_) | Target::Threads(_)
    );
    if !threads || request.total {
        return Err("that is for threads told apart: of a program, of -p or of -t");
    }
    if request.every.is_some() {
        return Err("a reading each so many events takes counters of the thread's own");
    }
    let mut encodings = request
        .sets
        .iter()
        .flatten()
        .flat_map(|event| &event.encodings);
    if encodings.any(|encoding| encoding.system) {
        return Err("an event belongs to a package or the machine, not to a core");
    }
    if !sees_all_threads(Path::new("/")) {
        return Err("threads have other numbers in the kernel than in this container");
    }
    Ok(())
}

/// Whether this process sees threads by the numbers that they have inside the kernel: those of the outermost namespace.
#[must_use]
pub fn sees_all_threads(root: &Path) -> bool {
    const OUTERMOST: &str = "pid:[4026531836]";
    std::fs::read_link(root.join("proc/self/ns/pid"))
        .is_ok_and(|namespace| namespace.as_os_str() == OUTERMOST)
}

pub(super) struct Followed {
    follow: Box<dyn Follow>,
    infos: Vec<GroupInfo>,
    attention: Attention,
    /// Processes with threads that were there first.
    pids: Vec<u32>,
}

impl Followed {
    /// Over what follows threads of these processes, whose end is awaited.
    pub(super) fn new(
        follow: Box<dyn Follow>,
        plan: &Plan,
        pids: Vec<u32>,
        awaited: Vec<OwnedFd>,
    ) -> Result<Self, CounterError> {
        let info = |kind: &Kind| {
            let width = plan
                .sets
                .get(kind.set as usize)
                .map_or(0, |set| set.events.len());
            let places = (0..width)
                .map(|place| (kind.present >> place & 1 == 1).then_some(place))
                .collect();
            let places = Places::new(places, width);
            GroupInfo {
                tree: NO_TREE,
                cpu: kind.cpu,
                set: kind.set,
                places,
                clock: true,
                counts: true,
                timed: false,
            }
        };
        let infos = follow.kinds().iter().map(info).collect();
        Ok(Self {
            follow,
            infos,
            attention: Attention::new(awaited)?,
            pids,
        })
    }

    /// Follows threads that are there already.
    pub(super) fn adopt(&mut self, threads: &[(u32, u32)]) -> Result<(), CounterError> {
        self.follow
            .adopt(threads)
            .map_err(CounterError::system("following threads in the kernel"))
    }
}

impl Backend for Followed {
    fn now(&self) -> Nanos {
        Nanos(sys::now())
    }

    fn wait(&mut self, until: Nanos) -> Result<Wake, CounterError> {
        loop {
            let left = until.since(self.now());
            let (wake, _) = self.attention.wait(left.min(LOOK), &[])?;
            if left <= LOOK || wake != Wake::default() || self.follow.is_crowded() {
                return Ok(wake);
            }
        }
    }

    fn drain(&mut self, notes: &mut Notes, ledger: &mut Ledger) {
        let Self { follow, infos, .. } = self;
        follow.collect(&mut |at, tid, heard| match heard {
            // That is most of all, and when it comes is all the same.
            Heard::Counted {
                pid,
                kind,
                cpu,
                enabled,
                running,
                values,
                alone: true,
            } => {
                let group = &infos[kind];
                let told = Cumulative {
                    at,
                    seen_on: cpu,
                    enabled,
                    running,
                    values,
                };
                ledger.tell(
                    Owner::Thread { pid, tid },
                    group.tree,
                    group.cpu,
                    group.set,
                    &told,
                );
            }
            _ => notes.heard(at, tid, &heard),
        });
        notes.lost = follow.lost();
    }

    fn groups(&self) -> &[GroupInfo] {
        &self.infos
    }

    fn group_of(&self, id: u64) -> Option<(usize, Says)> {
        Some((id as usize, Says::Due))
    }

    /// There are no totals besides what threads have counted.
    fn total(&mut self, group: usize, values: &mut Vec<u64>) -> Result<(u64, u64), CounterError> {
        values.clear();
        values.resize(
            self.infos
                .get(group)
                .map_or(0, |info| info.places.members()),
            0,
        );
        Ok((0, 0))
    }

    fn switch(&mut self, set: u32, on: bool) -> Result<(), CounterError> {
        self.follow
            .switch(set, on)
            .map_err(CounterError::system("switching counters"))
    }

    fn is_prompt(&self) -> bool {
        true
    }

    /// A parent learns of a thread's end a little before that thread leaves its CPU. So the awaited processes, and any other thread
    /// that /proc knows as ended, may still be about to put down their last counts.
    fn hear_out(&mut self) {
        let until = self.now() + PATIENCE;
        let mut ending = self.follow.living();
        ending.retain(|(pid, tid)| self.pids.contains(pid) || tasks::has_ended(*tid));
        while !ending.is_empty() && self.now() < until {
            std::thread::sleep(PAUSE);
            let living = self.follow.living();
            ending.retain(|thread| living.contains(thread));
        }
    }

    fn rest(&mut self) -> Vec<((CpuId, u32), Vec<u64>)> {
        let of = |(kind, counts): (usize, Vec<u64>)| {
            self.infos
                .get(kind)
                .map(|info| ((info.cpu, info.set), counts))
        };
        self.follow.rest().into_iter().filter_map(of).collect()
    }

    fn stopper(&self) -> Result<UnixStream, CounterError> {
        self.attention.stopper()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use countersteer_core::counters::{PlannedEvent, PlannedSet, Reading, Which};

    use super::super::follow::Follower;
    use super::super::task_counting::Hear;
    use super::*;
    use std::io;

    /// What is heard at each look, written down.
    struct Script {
        looks: VecDeque<Vec<(u64, u32, Heard<'static>)>>,
        /// Who has not left its CPU at each look.
        living: VecDeque<Vec<(u32, u32)>>,
        switched: Vec<(u32, bool)>,
    }

    impl Follow for Script {
        fn kinds(&self) -> Vec<Kind> {
            vec![
                Kind {
                    cpu: CpuId(0),
                    set: 0,
                    present: 3,
                },
                Kind {
                    cpu: CpuId(4),
                    set: 0,
                    present: 1,
                },
            ]
        }

        fn adopt(&mut self, _: &[(u32, u32)]) -> io::Result<()> {
            Err(io::Error::other("there is no room"))
        }

        fn switch(&mut self, set: u32, on: bool) -> io::Result<()> {
            self.switched.push((set, on));
            Ok(())
        }

        fn collect(&mut self, hear: Hear<'_>) {
            self.looks
                .pop_front()
                .into_iter()
                .flatten()
                .for_each(|(at, tid, heard)| hear(Nanos(at), tid, heard));
        }

        fn living(&mut self) -> Vec<(u32, u32)> {
            self.living.pop_front().unwrap_or_default()
        }

        fn rest(&mut self) -> Vec<(usize, Vec<u64>)> {
            vec![(1, vec![70, 60, 5, 0])]
        }

        fn lost(&self) -> u64 {
            2
        }

        fn is_crowded(&self) -> bool {
            false
        }
    }

    fn backend(looks: Vec<Vec<(u64, u32, Heard<'static>)>>) -> (Followed, Follower) {
        let event = |name: &str| PlannedEvent {
            name: name.into(),
            unit: String::new(),
            scale: 1.0,
            event: None,
        };
        let set = PlannedSet {
            events: vec![event("instructions"), event("cycles")],
        };
        let plan = Plan::new(vec![set], None).unwrap();
        let script = Script {
            looks: looks.into(),
            living: VecDeque::new(),
            switched: Vec::new(),
        };
        let backend = Followed::new(Box::new(script), &plan, vec![1], Vec::new()).unwrap();
        let mut follower = Follower::new(vec![0, 0, 0, 0, 1], backend.groups());
        follower.root(1, 1, Nanos::ZERO);
        (backend, follower)
    }

    const fn counted(
        kind: usize,
        cpu: u32,
        enabled: u64,
        running: u64,
        values: &'static [u64],
    ) -> Heard<'static> {
        let enabled = Nanos(enabled);
        let running = Nanos(running);
        Heard::Counted {
            pid: 1,
            kind,
            cpu: CpuId(cpu),
            enabled,
            running,
            values,
            alone: false,
        }
    }

    fn rows(follower: &mut Follower) -> Vec<(Reading, Vec<u64>)> {
        let readings = &follower.readings;
        let rows = readings
            .rows()
            .iter()
            .enumerate()
            .map(|(i, row)| (*row, readings.values(i).to_vec()))
            .collect();
        follower.readings.clear();
        rows
    }

    #[test]
    fn who_goes_on_is_counted_beside_what_befalls_others() {
        let first = vec![(20, 1, counted(0, 2, 15, 10, &[100, 200]))];
        let pid = 1;
        let kind = 0;
        let cpu = CpuId(3);
        let values = &[130, 250];
        let alone = Heard::Counted {
            pid,
            kind,
            cpu,
            enabled: Nanos(25),
            running: Nanos(20),
            values,
            alone: true,
        };
        let second = vec![
            (40, 1, alone),
            (30, 2, Heard::Born { pid: 1, parent: 1 }),
            (35, 2, counted(1, 4, 5, 5, &[7, 0])),
        ];
        let (mut backend, mut follower) = backend(vec![first, second]);
        for _ in 0..2 {
            follower.listen(&mut backend, false);
        }
        follower.flush(Which::All);
        let seen = rows(&mut follower);
        let of = |tid| {
            seen.iter()
                .find(|(row, _)| row.owner == Owner::Thread { pid: 1, tid })
                .unwrap()
        };
        assert_eq!(
            (of(1).0.cpu, of(1).0.enabled, of(1).0.running, &of(1).1),
            (Some(cpu), Nanos(25), Nanos(20), &values.to_vec())
        );
        assert_eq!(
            (of(2).0.end, &of(2).1, seen.len()),
            (Nanos(35), &vec![7, 0], 2)
        );
    }

    #[test]
    fn what_is_heard_becomes_readings_of_the_time_since_the_last() {
        let first = vec![
            (20, 1, counted(0, 2, 15, 10, &[100, 200])),
            // Told later, and earlier by its time.
            (10, 2, Heard::Born { pid: 1, parent: 1 }),
            (10, 2, Heard::Named(*b"worker\0nonsense!")),
            (30, 2, counted(1, 4, 20, 20, &[7, 0])),
        ];
        let second = vec![
            (50, 2, counted(1, 4, 25, 25, &[9, 0])),
            (50, 2, Heard::Ended),
        ];
        let (mut backend, mut follower) = backend(vec![first, second]);
        follower.listen(&mut backend, false);
        follower.flush(Which::All);
        let seen = rows(&mut follower);
        let thread = |tid| Owner::Thread { pid: 1, tid };
        let root = seen.iter().find(|(row, _)| row.owner == thread(1)).unwrap();
        assert_eq!(
            (root.0.cpu, root.0.core_type, root.0.present),
            (Some(CpuId(2)), 0, 3),
            "where it ran last"
        );
        assert_eq!(
            (root.0.enabled, root.0.running, &root.1),
            (Nanos(15), Nanos(10), &vec![100, 200])
        );
        let worker = seen.iter().find(|(row, _)| row.owner == thread(2)).unwrap();
        assert_eq!(
            (worker.0.core_type, worker.0.present, worker.0.start),
            (1, 1, Nanos(10))
        );
        assert_eq!(
            (follower.name(2), follower.born, follower.lost()),
            ("worker", 1, 2)
        );
        follower.listen(&mut backend, false);
        follower.flush(Which::All);
        let seen = rows(&mut follower);
        assert_eq!(seen.len(), 1);
        assert_eq!(
            (seen[0].0.owner, seen[0].0.last, &seen[0].1),
            (thread(2), true, &vec![2, 0])
        );
    }

    #[test]
    fn who_was_not_told_apart_is_the_rest() {
        let (mut backend, mut follower) =
            backend(vec![vec![(20, 1, counted(0, 2, 15, 10, &[100, 200]))]]);
        follower.listen(&mut backend, true);
        follower.settle(&mut backend).unwrap();
        let seen = rows(&mut follower);
        assert_eq!(
            seen.iter().map(|(row, _)| row.owner).collect::<Vec<_>>(),
            [Owner::Thread { pid: 1, tid: 1 }, Owner::Rest]
        );
        let (rest, values) = &seen[1];
        assert_eq!(
            (rest.cpu, rest.enabled, rest.running, values),
            (Some(CpuId(4)), Nanos(70), Nanos(60), &vec![5, 0])
        );
    }

    /// Process 1 is awaited; no thread has the second number; the third thread goes on.
    #[test]
    fn the_session_waits_for_threads_that_are_about_to_leave_their_cpus() {
        let (gone, lives) = (
            (u32::MAX, u32::MAX),
            (std::process::id(), std::process::id()),
        );
        let (mut backend, _) = backend(Vec::new());
        backend.follow = Box::new(Script {
            looks: VecDeque::new(),
            living: [
                vec![(1, 1), gone, lives],
                vec![gone, lives],
                vec![lives],
                vec![lives, lives],
            ]
            .into(),
            switched: Vec::new(),
        });
        backend.hear_out();
        assert_eq!(backend.follow.living().len(), 2, "three looks were enough");
    }

    #[test]
    fn threads_that_cannot_be_followed_are_an_error_that_says_so() {
        let (mut backend, _) = backend(Vec::new());
        let error = backend.adopt(&[(5, 5)]).unwrap_err().to_string();
        assert_eq!(
            error,
            "following threads in the kernel failed: there is no room"
        );
    }
}
