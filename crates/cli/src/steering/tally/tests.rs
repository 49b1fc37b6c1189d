//! Threads that end before or after their samples.

use countersteer_model::engine::{ThreadEvent, ThreadInfo};
use countersteer_model::sample::{Sample, Samples};
use countersteer_model::units::{CoreTypeId, CpuId, ProgramId};

use super::*;

fn event(thread: ThreadId, kind: ThreadEventKind) -> ThreadEvent {
    ThreadEvent {
        at: Nanos(1),
        thread,
        kind,
    }
}

fn sample(thread: ThreadId) -> Samples {
    let time = Nanos::from_millis(250);
    let sample = Sample::of_thread(thread, CpuId(0), CoreTypeId(0), time, time);
    Samples::of(sample, 1, &[])
}

#[test]
fn what_is_reported_late_of_threads_that_have_ended_is_their_programs() {
    let machine = countersteer_sysfs::topology::detect(std::path::Path::new("/")).unwrap();
    let topology = Arc::new(Topology::new(&machine));
    let mut tally = Tally::new(&topology, None, None, &Control::default());
    let long = ThreadId(5);
    let short = ThreadId(7);
    let strange = ThreadId(9);
    let of = |thread| (thread, ProgramId(3));
    let forked = |thread| event(thread, ThreadEventKind::New);
    let ends = |thread| event(thread, ThreadEventKind::Exit);
    let info = ThreadInfo {
        id: long,
        program: ProgramId(3),
        name: "program".into(),
        cpu: CpuId(0),
        runnable: true,
        nice: 0,
        allowed: Arc::default(),
        hint: None,
    };
    let seen = [
        Observation {
            threads: vec![info],
            events: vec![forked(long)],
            ..Observation::default()
        },
        Observation {
            events: vec![forked(short), ends(short), ends(long)],
            ended: vec![of(short), of(long)],
            samples: sample(short),
            ..Observation::default()
        },
        Observation {
            ended: vec![of(long)],
            samples: [sample(long), sample(strange)].into_iter().collect(),
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
