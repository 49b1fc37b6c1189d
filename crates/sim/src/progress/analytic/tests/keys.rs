//! Tests that every key of a machine file that the model reads changes a result.

use super::*;
use crate::progress::synthetic::{chase, compute, cyclic, streaming, vulnerable};
use countersteer_model::machine::DEFAULT_QUEUEING;
use toml::{Table, Value};

/// Keys that other parts of the simulator read: the Linux model, the counters, threads per core. `ways` is read by partitions
/// of shared caches, `remote` by moves of pages.
const ELSEWHERE: [&str; 9] = [
    "core_type.capacity",
    "core_type.counters",
    "core_type.fixed_counters",
    "core_type.smt",
    "core_type.power.idle_w",
    "core_type.frequency.points.watts",
    "cache.level",
    "cache.ways",
    "memory.remote",
];

/// Results of some programs alone on each core type, and together on all CPUs; `None` if the machine is refused.
fn results(machine: &Table) -> Option<Vec<u64>> {
    let machine = Machine::parse("changed", &machine.to_string()).ok()?;
    let topology = Arc::new(Topology::new(&machine));
    let mut model = Analytic::new(Arc::clone(&topology), ProgressConfig::default());
    let kinds = [
        compute(),
        streaming(),
        chase(4_000),
        cyclic(8_000),
        vulnerable(300_000),
    ];
    let mut results = Vec::new();
    let mut programs = Vec::new();
    for kind in kinds {
        let mut profile = profile("p", &[(kind, 1_000_000)]);
        let Profile::Recorded(recorded) = &mut profile else {
            panic!("synthetic profiles are recorded ones");
        };
        recorded.behaviours[0].mix.fp = 0.1;
        recorded.behaviours[0].mix.simd = 0.1;
        programs.push(model.add_program(Arc::new(profile)).unwrap());
    }
    for id in &programs {
        for core_type in 0..topology.core_types.len() {
            let ips = model.alone_ips(*id, CoreTypeId::from_index(core_type));
            results.push(ips.to_bits());
        }
    }
    let everywhere: Vec<_> = (topology.cpus.iter().enumerate())
        .map(|(nth, cpu)| (programs[nth % programs.len()], cpu.id, 1.0))
        .collect();
    for rates in model.steady_state(&everywhere) {
        results.extend([rates.ips.to_bits(), rates.power_w.to_bits()]);
    }
    Some(results)
}

/// Calls `with` for every number of the tables below `value`, and for its path.
fn numbers(value: &mut Value, path: &str, with: &mut impl FnMut(&str, &mut Value)) {
    match value {
        Value::Table(table) => {
            for (key, value) in table.iter_mut() {
                numbers(value, &format!("{path}.{key}"), with);
            }
        }
        Value::Array(rows) => rows.iter_mut().for_each(|row| numbers(row, path, with)),
        Value::Integer(_) | Value::Float(_) => with(path, value),
        _ => {}
    }
}

/// Returns the machine with the `nth` number multiplied by `factor`, and the path of this number.
fn changed(machine: &Table, nth: usize, factor: f64) -> Option<(String, Table)> {
    let mut value = Value::Table(machine.clone());
    let mut path = None;
    let mut at = 0;
    numbers(&mut value, "", &mut |key, number| {
        if at == nth {
            path = Some(key[1..].to_owned());
            *number = match *number {
                Value::Integer(n) => Value::Integer((n as f64 * factor).round() as i64),
                Value::Float(x) => Value::Float(x * factor),
                _ => return,
            };
        }
        at += 1;
    });
    let Value::Table(table) = value else {
        return None;
    };
    Some((path?, table))
}

#[test]
fn every_key_of_a_machine_file_changes_a_result_or_is_refused() {
    for name in [HYBRID, "apple-m1", "juno-2-4"] {
        let mut machine: Table = text(name).parse().unwrap();
        // Shipped machines have the default strength, which need not be written.
        let memory = machine["memory"][0].as_table_mut().unwrap();
        memory.insert("queueing".into(), DEFAULT_QUEUEING.into());
        let before = results(&machine);
        assert!(before.is_some());
        let mut count = 0;
        while let Some((path, _)) = changed(&machine, count, 1.0) {
            let read = path.starts_with("core_type.")
                || path.starts_with("cache.")
                || path.starts_with("memory.");
            if read && !ELSEWHERE.contains(&path.as_str()) {
                let differs = [0.25, 4.0].into_iter().any(|factor| {
                    changed(&machine, count, factor).is_some_and(|(_, m)| results(&m) != before)
                });
                assert!(differs, "{name}: number {count}, `{path}`, changes nothing");
            }
            count += 1;
        }
        assert!(count > 30, "{name}: {count} numbers");
    }
}
