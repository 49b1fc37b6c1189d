//! Tests of application hints: records contain them, and a replay reads them.

use std::convert::Infallible;
use std::sync::Arc;

use countersteer_model::driver::{DriverConfig, drive};
use countersteer_model::engine::{Applied, Engine, Observation, Watch};
use countersteer_model::hint::Hint;
use countersteer_model::machine::Machine;
use countersteer_model::placement::Placement;
use countersteer_model::policy::PolicyRng;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use countersteer_policies::parse;
use countersteer_report::record::{Collector, Detail, Manifest, Record, ReplayEngine};
use rand::SeedableRng;

use crate::records::Scratch;
use crate::synthetic::{HYBRID, Room, profiles};

const PERIOD: Nanos = Nanos::from_millis(100);
const SPEC: &str = "hsf:sf=oracle";

/// Engine in which two of three programs give changing hints.
struct Talking(Room);

impl Engine for Talking {
    type Error = Infallible;

    fn topology(&self) -> &Arc<Topology> {
        self.0.topology()
    }

    fn observe(&mut self, watch: &Watch<'_>, until: Nanos) -> Result<Observation, Infallible> {
        let mut seen = self.0.observe(watch, until)?;
        let turn = (seen.at.0 / 700_000_000) as u32;
        for (row, info) in seen
            .threads
            .iter_mut()
            .enumerate()
            .filter(|(row, _)| row % 3 > 0)
        {
            let row = row as u32;
            info.hint = Some(Hint::of(row as i32 - 4, 100 * row, (turn + row) % 3, row));
        }
        Ok(seen)
    }

    fn apply(&mut self, placement: &Placement) -> Result<Applied, Infallible> {
        self.0.apply(placement)
    }
}

fn recorded() -> Record {
    let machine = Machine::parse("machine.toml", HYBRID).unwrap();
    let topology = Arc::new(Topology::new(&machine));
    let mut policy = parse(SPEC, &topology).unwrap();
    let mut engine = Talking(Room::new(topology, 20, 3));
    let texts = (
        (machine.name.as_str(), HYBRID),
        ("talking", "[[program]]\nprofile = \"lbm.toml\"\n"),
    );
    let manifest = Manifest::new(texts.0, texts.1, SPEC, 3, PERIOD, [], profiles());
    let mut collector = Collector::new(manifest, Detail::NoSpans);
    let config = DriverConfig {
        period: PERIOD,
        until: Nanos::from_millis(20_000),
    };
    drive(
        &mut engine,
        policy.as_mut(),
        &mut [&mut collector],
        config,
        &mut PolicyRng::seed_from_u64(3),
    )
    .unwrap();
    let outcome = engine.0.outcome();
    collector.finish(&outcome)
}

/// Returns the number of decisions in which a replay of the record differs.
fn different(record: &Record) -> (usize, usize) {
    let mut engine = ReplayEngine::new(record).unwrap();
    let mut policy = parse(SPEC, engine.topology()).unwrap();
    let config = DriverConfig {
        period: PERIOD,
        until: Nanos::NEVER,
    };
    drive(
        &mut engine,
        policy.as_mut(),
        &mut [],
        config,
        &mut PolicyRng::seed_from_u64(3),
    )
    .unwrap();
    let compared = engine.differences().unwrap();
    (compared.same, usize::from(!compared.is_empty()))
}

#[test]
fn a_replay_reads_the_hints() {
    let scratch = Scratch::new("hints");
    let dir = scratch.0.join("run.rec");
    let record = recorded();
    assert!(
        record.hints.len() > 1000 && record.decisions.len() > 50,
        "{}",
        record.decisions.len()
    );
    record.save(&dir).unwrap();
    let mut back = Record::load(&dir).unwrap();
    back.manifest.tables.clear();
    assert!(back == record);
    let (same, different_then) = different(&back);
    assert!(same > 50 && different_then == 0, "{same}");
    back.hints.clear();
    assert_eq!(different(&back).1, 1, "it did matter");
    // A record without hints has no such table, like those of earlier versions.
    back.save(&dir).unwrap();
    assert!(!dir.join("told.parquet").exists() && Record::load(&dir).unwrap().hints.is_empty());
}
