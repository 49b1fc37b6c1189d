//! Tests of affinity masks that replace a scheduler that the kernel has ended.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use countersteer_live::StartingProgram;
use countersteer_live::placer::{EngineError, Placer};
use countersteer_live::undo::Journal;
use countersteer_model::engine::{Applied, Observation};

use super::*;

/// Scheduler that the kernel ends at once.
struct Ended;

impl Placer for Ended {
    fn name(&self) -> &'static str {
        "ended"
    }

    fn attach(&mut self, _: &ProcessRoot, _: &mut Journal) -> Result<(), EngineError> {
        Ok(())
    }

    fn detach(&mut self, _: &ProcessRoot, _: &mut Journal) -> Result<(), EngineError> {
        Ok(())
    }

    fn observe(
        &mut self,
        _: &Watch<'_>,
        _: Nanos,
        _: &mut Journal,
    ) -> Result<Observation, EngineError> {
        let why = "on purpose".into();
        let at = Nanos::ZERO;
        Err(EngineError::Ended { why, at })
    }

    fn apply(&mut self, _: &Placement, _: &mut Journal) -> Result<Applied, EngineError> {
        Ok(Applied::default())
    }

    fn wake_on(&mut self, _: OwnedFd) {}

    fn process_of(&self, _: ThreadId) -> Option<u32> {
        None
    }

    fn recount(&mut self, _: CounterPlan, _: Nanos, _: &mut Journal) -> Result<(), EngineError> {
        Ok(())
    }

    fn blindness(&self) -> Option<&str> {
        None
    }
}

#[test]
fn the_end_of_a_program_is_noticed_at_once_after_masks_took_over() {
    let journals = tempfile::tempdir().unwrap();
    let start = StartingProgram {
        command: ["sleep", "0.5"].map(str::to_owned).to_vec(),
        program: ProgramId(0),
        name: "sleep".into(),
        nice: 0,
        launch_on: None,
        start: Nanos::ZERO,
    };
    let config = LiveConfig {
        affinity: config(None),
        journals: journals.path().to_owned(),
        root: "/".into(),
        recount: None,
        stealing: Stealing::default(),
        signals: EndSignals::listen().unwrap(),
        say: |_| {},
    };
    let workload = LiveWorkload::of(vec![start]).unwrap();
    let mut engine = LiveEngine::open(config, Some(Box::new(Ended)), workload).unwrap();
    let begun = Instant::now();
    let watch = Watch {
        period: Nanos::from_millis(60_000),
        ..WATCH
    };
    let until = Nanos::from_millis(60_000);
    while !engine.observe(&watch, until).unwrap().finished {
        assert!(begun.elapsed() < Duration::from_secs(30), "it goes on");
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "noticed late");
    assert!(
        engine.placers().starts_with("ended, then "),
        "{}",
        engine.placers()
    );
}
