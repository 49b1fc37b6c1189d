//! Compares speed-up factors of the kernel with those of user space, from the same counters: judge MACHINE.toml EVENTS
//! COMMAND...
//!
//! Prints, once per period and thread, the speed-up factor by step tables as computed in the kernel and as metric `sf_steps`;
//! at the end, the instructions of all samples. EVENTS may be several lists with `;` between them: they replace each other
//! every five periods. Lists with `|` between them are multiplexed, a period each. `cpu_clock` represents misses of the
//! last-level cache, of which emulated machines count none. Has the same requirements as `steer run --engine scx`.

use std::error::Error;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use countersteer_bpf::{ScxConfig, ScxEngine, probe};
use countersteer_counters::resolve;
use countersteer_counters::{Pmus, Resolved};
use countersteer_live::placer::{CounterPlan, ProcessRoot};
use countersteer_live::undo::{TemporaryJournal, journal_folder};
use countersteer_model::counters::{PlannedSet, SetPlan, parse_set};
use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::engine::Watch;
use countersteer_model::machine::Machine;
use countersteer_model::metric::MetricBank;
use countersteer_model::sample::Event;
use countersteer_model::topology::Topology;
use countersteer_model::units::{Nanos, ProgramId};

const PERIOD: Nanos = Nanos::from_millis(100);

fn counters(pmus: &Pmus, events: &str) -> Result<CounterPlan, Box<dyn Error>> {
    let mut sets = Vec::new();
    for list in events.split('|') {
        let mut set = resolve(list, &parse_set(list)?, pmus)?;
        for event in &mut set {
            if event.planned.event == Some(Event::CpuClock) {
                event.planned.event = Some(Event::LlcMisses);
            }
        }
        sets.push(set);
    }
    let planned = |set: &Vec<Resolved>| PlannedSet {
        events: set.iter().map(|e| e.planned.clone()).collect(),
    };
    let plan = SetPlan::new(sets.iter().map(planned).collect(), Some(PERIOD))?;
    Ok((sets, plan))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [machine, events, program, words @ ..] = &arguments[..] else {
        return Err("judge MACHINE.toml EVENTS COMMAND...".into());
    };
    probe()?;
    let machine = Machine::parse(machine, &std::fs::read_to_string(machine)?)?;
    let topology = Arc::new(Topology::new(&machine));
    let pmus = Pmus::read(std::path::Path::new("/"))?;
    let lists = events
        .split(';')
        .map(|events| counters(&pmus, events))
        .collect::<Result<Vec<_>, _>>()?;
    let config = ScxConfig {
        counters: lists.first().cloned(),
        period: PERIOD,
        ..ScxConfig::new(
            Arc::clone(&topology),
            CpuNumbers::new(machine.os_cpu_numbers()),
        )
    };
    let mut engine = ScxEngine::open(config)?;
    let mut undo = TemporaryJournal::begin(&journal_folder())?;
    let mut child = Command::new(program).args(words).spawn()?;
    engine.attach(
        &ProcessRoot {
            pid: child.id(),
            program: ProgramId(0),
            name: "program".into(),
        },
        undo.journal(),
    )?;
    let mut bank = MetricBank::new(&topology, &["sf_steps"]);
    let watch = Watch {
        metrics: &["sf_steps"],
        period: PERIOD,
        events: false,
        switches: false,
        values: None,
    };
    let (mut next, mut instructions, mut ended) = (Nanos::ZERO, 0.0, false);
    for round in 1.. {
        if ended {
            break;
        }
        ended = child.try_wait()?.is_some();
        next += PERIOD;
        let seen = engine.observe(&watch, next, undo.journal())?;
        instructions += seen
            .samples
            .iter()
            .filter_map(|s| s.counts.get(Event::Instructions))
            .sum::<f64>();
        bank.update(&seen);
        for thread in &seen.threads {
            let kernel = engine.factor(thread.id);
            let user = bank.get(thread.id, "sf_steps");
            println!("{} {kernel:?} {user:?}", thread.id.0);
        }
        if lists.len() > 1 && round % 5 == 0 {
            engine.recount(
                lists[round / 5 % lists.len()].clone(),
                PERIOD,
                undo.journal(),
            )?;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("instructions {instructions}");
    println!("{:?}", engine.figures()?);
    Ok(())
}
