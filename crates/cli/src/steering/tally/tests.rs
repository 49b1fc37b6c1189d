//! Threads that end before or after their samples.

use countersteer_core::engine::{ThreadEvent, ThreadInfo};
use countersteer_core::sample::{Counts, Sample};
use countersteer_core::units::{CoreTypeId, CpuId, ProgramId};

use super::*;

fn event(thread: ThreadId, kind: ThreadEventKind) -> ThreadEvent {
    ThreadEvent {
        at: Nanos(1),
        thread,
        kind,
    }
}

fn sample(thread: ThreadId) -> Sample {
    let cpu = CpuId(0);
    let core_type = CoreTypeId(0);
    let time = Nanos::from_millis(250);
    let counts = Counts::default();
    Sample {
        thread,
        cpu,
        core_type,
        at: time,
        set: 0,
        sets: 1,
        enabled: time,
        running: time,
        counts,
    }
}

#[test]
fn what_is_told_late_of_threads_that_have_ended_is_their_programs() {
    let machine = countersteer_host::topology::detect(std::path::Path::new("/")).unwrap();
    let topology = Arc::new(Topology::new(&machine));
    let mut tally = Tally::new(&topology, None, None, &Control::default());
    let long = ThreadId(5);
    let short = ThreadId(7);
    let strange = ThreadId(9);
    let of = |thread| (thread, ProgramId(3));
    let born = |thread| event(thread, ThreadEventKind::New);
    let ends = |thread| event(thread, ThreadEventKind::Exit);
    let info = ThreadInfo {
        id: long,
        program: ProgramId(3),
        name: "program".into(),
        cpu: CpuId(0),
        runnable: true,
        nice: 0,
        allowed: Arc::default(),
        told: None,
    };
    let seen = [
        Observation {
            threads: vec![info],
            events: vec![born(long)],
            ..Observation::default()
        },
        Observation {
            events: vec![born(short), ends(short), ends(long)],
            ended: vec![of(short), of(long)],
            samples: vec![sample(short)],
            ..Observation::default()
        },
        Observation {
            ended: vec![of(long)],
            samples: vec![sample(long), sample(strange)],
            ..Observation::default()
        },
    ];
    seen.iter()
        .for_each(|seen| tally.observation(&topology, seen, &MetricBank::new(&topology, &[])));
    let program = &tally.programs[&3];
    assert_eq!(
        (program.threads, program.living, program.cpu_s.iter().sum()),
        (2, 0, 0.5)
    );
    let rest = tally.summary.short_lived.unwrap();
    assert_eq!((rest.threads, rest.cpu_s.iter().sum()), (0, 0.25));
}
