//! Tests of counting by BPF programs, with a script instead of the programs.

use std::collections::VecDeque;

use countersteer_model::counters::Which;
use countersteer_model::sample::{Sample, SampleRow};
use countersteer_model::units::CoreTypeId;

use super::super::follow::{Follower, TaskEvent};
use super::super::request::SPACING_NS;
use super::super::request::testing::request;
use super::super::session::Session;
use super::interface::TakeReport;
use super::*;
use std::io;
use std::process::Command;

/// Script of the reports of each `collect`.
struct Script {
    looks: VecDeque<Vec<(u64, u32, TaskReport<'static>)>>,
    /// Threads that have not left their last CPU, at each check.
    living: VecDeque<Vec<(u32, u32)>>,
    has_room: bool,
    switched: Vec<(u32, bool)>,
}

impl Follow for Script {
    fn kinds(&self) -> Vec<SetOfClass> {
        vec![
            SetOfClass {
                cpu: CpuId(0),
                set: 0,
                present: 3,
            },
            SetOfClass {
                cpu: CpuId(4),
                set: 0,
                present: 1,
            },
        ]
    }

    fn adopt(&mut self, _: &[(u32, u32)]) -> io::Result<()> {
        if self.has_room {
            return Ok(());
        }
        Err(io::Error::other("there is no room"))
    }

    fn switch(&mut self, set: u32, on: bool) -> io::Result<()> {
        self.switched.push((set, on));
        Ok(())
    }

    fn collect(&mut self, take: TakeReport<'_>) {
        self.looks
            .pop_front()
            .into_iter()
            .flatten()
            .for_each(|(at, tid, report)| take(Nanos(at), tid, report));
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

fn backend(looks: Vec<Vec<(u64, u32, TaskReport<'static>)>>) -> (BpfCounters, Follower) {
    let plan = request(1, None).plan;
    let script = Script {
        looks: looks.into(),
        living: VecDeque::new(),
        has_room: false,
        switched: Vec::new(),
    };
    let backend = BpfCounters::new(Box::new(script), &plan, vec![1], Vec::new()).unwrap();
    let mut follower = Follower::new(&[0, 0, 0, 0, 1], backend.groups(), &plan);
    follower.root(1, 1, Nanos::ZERO);
    (backend, follower)
}

const fn counted(
    kind: usize,
    cpu: u32,
    enabled: u64,
    running: u64,
    values: &'static [u64],
) -> TaskReport<'static> {
    let enabled = Nanos(enabled);
    let running = Nanos(running);
    TaskReport::Counted {
        pid: 1,
        kind,
        cpu: CpuId(cpu),
        enabled,
        running,
        values,
        alone: false,
    }
}

fn rows(follower: &mut Follower) -> Vec<(Sample, Vec<u64>)> {
    let rows = follower.readings.take();
    let values = |row: &SampleRow<'_>| row.counts.values().iter().map(|v| *v as u64).collect();
    rows.iter().map(|row| (*row, values(&row))).collect()
}

#[test]
fn threads_with_counts_alone_are_counted_beside_those_with_events() {
    let first = vec![(20, 1, counted(0, 2, 15, 10, &[100, 200]))];
    let pid = 1;
    let kind = 0;
    let cpu = CpuId(3);
    let values = &[130, 250];
    let alone = TaskReport::Counted {
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
        (30, 2, TaskReport::Forked { pid: 1, parent: 1 }),
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
fn what_is_reported_becomes_readings_of_the_time_since_the_last() {
    let first = vec![
        (20, 1, counted(0, 2, 15, 10, &[100, 200])),
        // Reported later, but with an earlier time.
        (10, 2, TaskReport::Forked { pid: 1, parent: 1 }),
        (10, 2, TaskReport::Named(*b"worker\0nonsense!")),
        (30, 2, counted(1, 4, 20, 20, &[7, 0])),
    ];
    let second = vec![
        (50, 2, counted(1, 4, 25, 25, &[9, 0])),
        (50, 2, TaskReport::Exited),
    ];
    let (mut backend, mut follower) = backend(vec![first, second]);
    follower.listen(&mut backend, false);
    follower.flush(Which::All);
    let seen = rows(&mut follower);
    let thread = |tid| Owner::Thread { pid: 1, tid };
    let root = seen.iter().find(|(row, _)| row.owner == thread(1)).unwrap();
    assert_eq!(
        (root.0.cpu, root.0.core_type, root.0.present),
        (Some(CpuId(2)), CoreTypeId(0), 3),
        "where it ran last"
    );
    assert_eq!(
        (root.0.enabled, root.0.running, &root.1),
        (Nanos(15), Nanos(10), &vec![100, 200])
    );
    let worker = seen.iter().find(|(row, _)| row.owner == thread(2)).unwrap();
    assert_eq!(
        (worker.0.core_type, worker.0.present, worker.0.start),
        (CoreTypeId(1), 1, Nanos(10))
    );
    assert_eq!(
        (follower.name(2), follower.forked, follower.lost()),
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
fn counts_without_a_slot_are_the_rest() {
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

/// Process 1 is awaited; the second thread has a TID that does not exist; the third thread continues.
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
        has_room: false,
        switched: Vec::new(),
    });
    backend.wait_for_final_counts();
    assert_eq!(backend.follow.living().len(), 2, "three looks were enough");
}

#[test]
fn threads_that_cannot_be_followed_are_an_error_that_says_so() {
    let (mut backend, _) = backend(Vec::new());
    let request = request(1, None);
    let opening = request.opening(SPACING_NS);
    let error = backend.attach(&opening, &[(5, 5)]).unwrap_err().to_string();
    assert_eq!(
        error,
        "following threads in the kernel failed: there is no room"
    );
}

#[test]
fn an_engine_learns_of_forks_execs_and_exits() {
    let mut program = Command::new("sleep").arg("60").spawn().unwrap();
    let own = program.id();
    let forked = |pid, parent| TaskReport::Forked { pid, parent };
    let name = *b"program\0nonsense";
    let look = vec![
        (10, 2, forked(2, own)),
        (11, 3, forked(2, 2)),
        (20, 2, TaskReport::Exited),
        (21, 2, TaskReport::Renumbered { pid: 2, before: 3 }),
        (22, 2, TaskReport::Exec(name)),
    ];
    let script = Script {
        looks: VecDeque::from([look]),
        living: VecDeque::new(),
        has_room: true,
        switched: Vec::new(),
    };
    let request = request(1, Some(10));
    let followed =
        BpfCounters::new(Box::new(script), &request.plan, Vec::new(), Vec::new()).unwrap();
    let mut session = Session::of_engine(request, followed);
    session.attach(own).unwrap();
    program.kill().unwrap();
    program.wait().unwrap();
    session.listen();
    let events: Vec<(u32, TaskEvent)> = session
        .task_events()
        .into_iter()
        .map(|(_, tid, event)| (tid, event))
        .collect();
    let expected = [
        (
            2,
            TaskEvent::Forked {
                pid: 2,
                parent: own,
            },
        ),
        (3, TaskEvent::Forked { pid: 2, parent: 2 }),
        (2, TaskEvent::Exited),
        (2, TaskEvent::Forked { pid: 2, parent: 3 }),
        (3, TaskEvent::Exited),
        (2, TaskEvent::Exec),
    ];
    assert_eq!(events, expected);
    assert!(session.knows(own) && session.knows(2) && !session.knows(3));
}
