//! Tests of two sessions over a simulated thread that runs without interruption: its counts must add up to the time that
//! passed.
use std::io;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use countersteer_model::counters::Samples;
use countersteer_model::units::{CpuId, Nanos};

use super::super::super::bpf::BpfCounters;
use super::super::super::bpf::interface::{Follow, SetOfClass, TakeReport, TaskReport};
use super::super::super::follow::TaskEvent;
use super::super::super::request::testing::request;
use super::super::Session;

/// A thread that has run for less than this since its last sample is not interrupted by `collect`.
const SPACING: u64 = 10;

/// Machine that both sessions observe.
#[derive(Default)]
struct Machine {
    now: u64,
    adopted: Vec<u32>,
    /// Reports of the next `collect` of any session besides counts.
    reports: Vec<(u32, TaskReport<'static>)>,
    switched: Vec<(&'static str, bool)>,
}

/// Counts one thread as the BPF programs do: its row grows when the thread is read, which `collect` does not always do.
struct Running {
    name: &'static str,
    machine: Arc<Mutex<Machine>>,
    tid: u32,
    on: bool,
    read_at: u64,
    row: u64,
    reported: u64,
}

impl Running {
    fn read(&mut self) {
        let now = self.machine.lock().unwrap().now;
        if self.on {
            self.row += now - self.read_at;
        }
        self.read_at = now;
    }
}

impl Follow for Running {
    fn kinds(&self) -> Vec<SetOfClass> {
        vec![SetOfClass {
            cpu: CpuId(0),
            set: 0,
            present: 3,
        }]
    }

    fn adopt(&mut self, threads: &[(u32, u32)]) -> io::Result<()> {
        let mut machine = self.machine.lock().unwrap();
        machine.adopted.extend(threads.iter().map(|(_, tid)| *tid));
        Ok(())
    }

    fn switch(&mut self, _: u32, on: bool) -> io::Result<()> {
        self.read();
        self.on = on;
        let mut machine = self.machine.lock().unwrap();
        machine.switched.push((self.name, on));
        Ok(())
    }

    fn collect(&mut self, take: TakeReport<'_>) {
        let now = self.machine.lock().unwrap().now;
        if now - self.read_at >= SPACING {
            self.read();
        }
        let reports = std::mem::take(&mut self.machine.lock().unwrap().reports);
        for (tid, report) in reports {
            take(Nanos(now), tid, report);
        }
        if self.row > self.reported {
            self.reported = self.row;
            let counted = TaskReport::Counted {
                pid: self.tid,
                kind: 0,
                cpu: CpuId(0),
                enabled: Nanos(self.row),
                running: Nanos(self.row),
                values: &[self.row, 0],
                alone: true,
            };
            take(Nanos(now), self.tid, counted);
        }
    }

    fn living(&mut self) -> Vec<(u32, u32)> {
        Vec::new()
    }

    fn rest(&mut self) -> Vec<(usize, Vec<u64>)> {
        Vec::new()
    }

    fn lost(&self) -> u64 {
        0
    }

    fn is_crowded(&self) -> bool {
        false
    }
}

/// Process that has a PID and does nothing.
struct Program(Child);

impl Program {
    fn start() -> Self {
        Self(Command::new("sleep").arg("60").spawn().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn session(name: &'static str, machine: &Arc<Mutex<Machine>>, tid: u32) -> Session {
    let running = Running {
        name,
        machine: Arc::clone(machine),
        tid,
        on: false,
        read_at: 0,
        row: 0,
        reported: 0,
    };
    let request = request(1, Some(10));
    let counted =
        BpfCounters::new(Box::new(running), &request.plan, Vec::new(), Vec::new()).unwrap();
    Session::of_engine(request, counted)
}

fn total(samples: &Samples) -> u64 {
    samples
        .of_threads()
        .map(|(_, row)| row.counts.values()[0] as u64)
        .sum()
}

fn turn(session: &mut Session) -> u64 {
    let mut sum = 0;
    session.turn(|samples| sum = total(samples)).unwrap();
    sum
}

fn pass(machine: &Arc<Mutex<Machine>>, now: u64) {
    machine.lock().unwrap().now = now;
}

#[test]
fn counts_of_a_running_thread_are_neither_lost_nor_doubled() {
    let program = Program::start();
    let tid = program.0.id();
    let machine = Arc::new(Mutex::new(Machine::default()));
    let mut former = session("former", &machine, tid);
    former.attach(tid).unwrap();
    pass(&machine, 95);
    former.listen();
    assert_eq!(turn(&mut former), 95);
    // One session has read the thread a short time ago; the other one has adopted it only now.
    pass(&machine, 100);
    let mut next = session("next", &machine, tid);
    next.attach(tid).unwrap();
    pass(&machine, 104);
    machine.lock().unwrap().switched.clear();
    let mut last = 0;
    former
        .exchange(next, |samples| last = total(samples))
        .unwrap();
    assert_eq!(last, 9, "since the last read of the former session");
    let switched = &machine.lock().unwrap().switched.clone();
    let switches = [("next", false), ("former", false), ("next", true)];
    assert_eq!(switched, &switches);
    // Much later than the exchange, or a short time after it.
    pass(&machine, 150);
    former.listen();
    assert_eq!(turn(&mut former), 46);
}

#[test]
fn events_that_both_sessions_have_reported_are_there_once() {
    let program = Program::start();
    let tid = program.0.id();
    let machine = Arc::new(Mutex::new(Machine::default()));
    let mut former = session("former", &machine, tid);
    let mut next = session("next", &machine, tid);
    former.attach(tid).unwrap();
    next.attach(tid).unwrap();
    let forked = TaskReport::Forked {
        pid: 7_000_000,
        parent: tid,
    };
    let both = vec![(7_000_000, forked)];
    machine.lock().unwrap().reports = both.clone();
    former.listen();
    machine.lock().unwrap().reports = both;
    next.listen();
    machine.lock().unwrap().reports = vec![(7_000_000, TaskReport::Exited)];
    former.exchange(next, |_| {}).unwrap();
    let events: Vec<TaskEvent> = former.task_events().iter().map(|event| event.2).collect();
    let forked = TaskEvent::Forked {
        pid: 7_000_000,
        parent: tid,
    };
    assert_eq!(events, [forked, TaskEvent::Exited]);
}

#[test]
fn threads_that_are_counted_go_on_when_their_process_is_attached_again() {
    let own = std::process::id();
    let machine = Arc::new(Mutex::new(Machine::default()));
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let (tell, sent) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        tell.send(nix::unistd::gettid().as_raw() as u32).unwrap();
        let _ = wait.recv();
    });
    let tid = sent.recv().unwrap();
    let mut session = session("one", &machine, tid);
    session.attach(own).unwrap();
    pass(&machine, 100);
    machine.lock().unwrap().reports = vec![(own, TaskReport::Exited)];
    session.listen();
    assert_eq!(turn(&mut session), 100);
    assert!(!session.knows(own) && session.knows(tid));
    // The main thread is not known any more, another one is.
    pass(&machine, 130);
    machine.lock().unwrap().adopted.clear();
    session.attach(own).unwrap();
    session.listen();
    assert_eq!(turn(&mut session), 30);
    let adopted = machine.lock().unwrap().adopted.clone();
    assert!(
        adopted.contains(&own) && !adopted.contains(&tid),
        "{adopted:?}"
    );
    drop(done);
    thread.join().unwrap();
}
