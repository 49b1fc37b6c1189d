//! The programs of SPEC CPU2017, simulated from published counters, beside their measured speed on several chips.
//!
//! The profiles are `profiles/published/*-2017`, which name their tables; the measurements are in `bench/spec2017.tsv`. Both are
//! of the same programs, so single rows are conclusive, unlike those of [`super::silicon`]. A chip is simulated with the core
//! types of a shipped machine, its own clocks and its own cache sizes.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use countersteer_model::machine::{Machine, SfSpread};
use countersteer_model::profile::Profile;
use countersteer_model::topology::Topology;
use countersteer_model::units::CoreTypeId;
use countersteer_sim::progress::{Analytic, ProgressConfig, ProgressModel};

use super::runner::{machine_file, profiles, quantile, rank_correlation, root};

/// Cache sizes of a chip that differ from those of the machine file, in KiB.
#[derive(Default)]
struct Sizes {
    /// Private L2 of the first core type.
    l2: Option<f64>,
    /// Shared caches: level, CPU that uses the cache, size.
    shared: &'static [(u32, u32, f64)],
}

/// A measured chip, and how it is simulated.
struct Chip {
    name: &'static str,
    /// `fit` if constants of the core model were fitted on the chip's figures, `input` if the profiles were, else `held`.
    half: &'static str,
    machine: &'static str,
    /// Letter of a core in the table of measurements, and core type in the machine file; the fast core first.
    cores: &'static [(&'static str, &'static str)],
    sizes: Sizes,
}

const INTEL: &[(&str, &str)] = &[("P", "golden-cove"), ("E", "gracemont")];
const APPLE: &[(&str, &str)] = &[("P", "firestorm"), ("E", "icestorm")];
const PLAIN: Sizes = Sizes {
    l2: None,
    shared: &[],
};

/// Measured chips whose core types have a pipeline. Raptor Lake's P core is a Golden Cove with more L2. The M2's cores are
/// simulated as the M1's, their nearest relatives.
const CHIPS: [Chip; 8] = [
    chip("i9-12900KS", "fit", "i9-12900k-8p8e", INTEL, PLAIN),
    chip("M1", "fit", "apple-m1", APPLE, PLAIN),
    chip(
        "i7-13700K",
        "held",
        "i9-12900k-8p8e",
        INTEL,
        Sizes {
            l2: Some(2048.0),
            shared: &[(2, 8, 4096.0)],
        },
    ),
    chip(
        "i9-14900K",
        "held",
        "i9-12900k-8p8e",
        INTEL,
        Sizes {
            l2: Some(2048.0),
            shared: &[(2, 8, 4096.0), (3, 0, 36_864.0)],
        },
    ),
    chip(
        "M2",
        "held",
        "apple-m1",
        APPLE,
        Sizes {
            l2: None,
            shared: &[(2, 4, 16_384.0)],
        },
    ),
    // L3 holds what L2 evicted, so a program has both.
    chip(
        "i9-10980XE",
        "input",
        "xeon-gold-6138",
        &[("-", "skylake-sp")],
        Sizes {
            l2: None,
            shared: &[(3, 0, 26_368.0)],
        },
    ),
    chip("7500F", "held", "ryzen-7950x3d", &[("-", "zen4")], PLAIN),
    chip("9R14", "held", "ryzen-7950x3d", &[("-", "zen4")], PLAIN),
];

const fn chip(
    name: &'static str,
    half: &'static str,
    machine: &'static str,
    cores: &'static [(&'static str, &'static str)],
    sizes: Sizes,
) -> Chip {
    Chip {
        name,
        half,
        machine,
        cores,
        sizes,
    }
}

/// Chips whose programs have a row each.
const DETAILED: [&str; 2] = ["i9-12900KS", "M1"];

/// Measured figures of a program on a core.
#[derive(Clone, Copy)]
struct Measured {
    ghz: f64,
    ipc: f64,
}

/// Simulated and measured values of programs.
type Pairs = Vec<(f64, f64)>;

/// Measurements by chip, core and program.
type Table = BTreeMap<(String, String, String), Measured>;

/// A program on the cores of a chip: simulated and measured instructions per cycle, the fast core first.
struct Row {
    program: String,
    simulated: Vec<f64>,
    measured: Vec<f64>,
}

impl Row {
    /// Ratio of the first core's value to the second's, simulated and measured.
    fn ratio(&self) -> (f64, f64) {
        (
            self.simulated[0] / self.simulated[1],
            self.measured[0] / self.measured[1],
        )
    }
}

/// Prints the section.
pub fn run() -> Result<(), Box<dyn Error>> {
    let table = table()?;
    let programs: Vec<Arc<Profile>> = profiles("published")?
        .into_iter()
        .filter(|p| p.name().ends_with("-2017"))
        .collect();
    println!(
        "\n### SPEC CPU2017 from published counters against silicon\n\nThe {} programs of `profiles/published/*-2017`, alone on each core of a chip, beside measured instructions per cycle (IPC)\nof the same programs (`bench/spec2017.tsv`). `fit`: constants of the core model were fitted on programs of the\nchip; `input`: the profiles are fitted on its IPC; `held`: neither. Errors are medians over programs. The last column is the error of the best constant: the median of the\nother programs' ratios.\n",
        programs.len()
    );
    println!(
        "| chip | programs | rank of P, E, ratio | error of P | of E | of the ratio | simulated over measured P, E, ratio | E above P | in the printed interval | constant |\n|---|---|---|---|---|---|---|---|---|---|"
    );
    let mut shown = Vec::new();
    for chip in &CHIPS {
        let rows = rows(chip, &programs, &table)?;
        summary(chip, &rows);
        if DETAILED.contains(&chip.name) {
            shown.push((chip.name, rows));
        }
    }
    println!(
        "\nThe Qualcomm 8cx Gen 3 and other measured chips are left out: no pipeline describes their cores. The M2 has its own\ncores, simulated as the M1's.\n"
    );
    println!(
        "| program | 12900KS P | E | ratio | M1 P | E | ratio |\n|---|---|---|---|---|---|---|"
    );
    let [(_, intel), (_, apple)] = &shown[..] else {
        return Err("the rows of two chips are printed".into());
    };
    for (a, b) in intel.iter().zip(apple) {
        println!("| {} | {} | {} |", a.program, cells(a), cells(b));
    }
    Ok(())
}

fn cells(row: &Row) -> String {
    let (simulated, measured) = row.ratio();
    format!(
        "{:.2}/{:.2} | {:.2}/{:.2} | {simulated:.2}/{measured:.2}",
        row.simulated[0], row.measured[0], row.simulated[1], row.measured[1]
    )
}

fn summary(chip: &Chip, rows: &[Row]) {
    let pairs = |of: &dyn Fn(&Row) -> (f64, f64)| rows.iter().map(of).collect::<Vec<_>>();
    let mut columns = vec![
        pairs(&|r| (r.simulated[0], r.measured[0])),
        pairs(&|r| {
            (
                *r.simulated.last().unwrap_or(&1.0),
                *r.measured.last().unwrap_or(&1.0),
            )
        }),
    ];
    let hybrid = chip.cores.len() > 1;
    if hybrid {
        columns.push(pairs(&Row::ratio));
    } else {
        columns.truncate(1);
    }
    let list = |of: fn(&Pairs) -> String| columns.iter().map(of).collect::<Vec<_>>().join(", ");
    let error = |column: usize| {
        columns.get(column).map_or("-".to_owned(), |c| {
            let of = |(s, m): &(f64, f64)| (s / m - 1.0).abs();
            format!("{:.0} %", 100.0 * median(c.iter().map(of)))
        })
    };
    let (above, inside, constant) = if hybrid {
        hybrid_cells(chip, &columns[2])
    } else {
        ("-".into(), "-".into(), "-".into())
    };
    println!(
        "| {} ({}) | {} | {} | {} | {} | {} | {} | {above} | {inside} | {constant} |",
        chip.name,
        chip.half,
        rows.len(),
        list(|c| format!("{:.2}", rank_correlation(c))),
        error(0),
        error(1),
        error(2),
        list(|c| format!("{:.2}", median(c.iter().map(|(s, m)| s / m)))),
    );
}

/// Returns the rows in which E is above P, those in the printed interval, and the error of the best constant.
fn hybrid_cells(chip: &Chip, ratios: &[(f64, f64)]) -> (String, String, String) {
    let spread = machine_file(chip.machine).ok().and_then(|machine| {
        let of = |name| machine.core_type.iter().find(|t| t.name == name);
        Some(SfSpread::of(of(chip.cores[0].1)?, of(chip.cores[1].1)?).0)
    });
    let spread = spread.unwrap_or(SfSpread::KNOWN);
    let inside = ratios.iter().filter(|(simulated, measured)| {
        let (low, high) = spread.interval(*simulated);
        (low..=high).contains(measured)
    });
    let without = |nth: usize| {
        let others = ratios.iter().enumerate().filter(|(i, _)| *i != nth);
        median(others.map(|(_, (_, m))| *m))
    };
    let constant = ratios
        .iter()
        .enumerate()
        .map(|(i, (_, m))| (without(i) / m - 1.0).abs());
    let n = ratios.len();
    (
        format!("{}/{n}", ratios.iter().filter(|(s, _)| *s < 1.0).count()),
        format!("{:.0} %", 100.0 * inside.count() as f64 / n as f64),
        format!("{:.0} %", 100.0 * median(constant)),
    )
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    quantile(&values, 0.5)
}

/// Simulates the programs that were measured on all cores of a chip.
fn rows(chip: &Chip, programs: &[Arc<Profile>], table: &Table) -> Result<Vec<Row>, Box<dyn Error>> {
    let topology = topology(chip, table)?;
    let mut rows = Vec::new();
    for profile in programs {
        let short = profile.name().trim_end_matches("-2017").to_owned();
        let on = |core: &str| {
            let key = table.keys().find(|(name, letter, program)| {
                name == chip.name && letter == core && program[4..] == format!("{short}_r")
            });
            key.and_then(|key| table.get(key)).map(|m| m.ipc)
        };
        let measured: Option<Vec<f64>> = chip.cores.iter().map(|(core, _)| on(core)).collect();
        let Some(measured) = measured else { continue };
        let mut model = Analytic::new(Arc::clone(&topology), ProgressConfig::default());
        let id = model.add_program(Arc::clone(profile))?;
        let ipc = |name: &str| {
            let types = &topology.core_types;
            let row = types.iter().position(|t| t.name == name)?;
            let hz = types[row].freq_ghz * 1e9;
            Some(model.alone_ips(id, CoreTypeId::from_index(row)) / hz)
        };
        let simulated: Option<Vec<f64>> = chip.cores.iter().map(|(_, name)| ipc(name)).collect();
        rows.push(Row {
            program: short,
            simulated: simulated.ok_or("the machine lacks a core type")?,
            measured,
        });
    }
    Ok(rows)
}

/// Returns the chip's topology: the machine file with the chip's clocks and cache sizes.
fn topology(chip: &Chip, table: &Table) -> Result<Arc<Topology>, Box<dyn Error>> {
    let mut machine: Machine = machine_file(chip.machine)?;
    for core_type in &mut machine.core_type {
        let core = chip.cores.iter().find(|(_, name)| *name == core_type.name);
        if let Some((letter, _)) = core {
            let of_core = table
                .iter()
                .filter(|((name, core, _), _)| name == chip.name && core == letter);
            core_type.freq_ghz = median(of_core.map(|(_, m)| m.ghz));
        }
    }
    let first = machine
        .core_type
        .iter_mut()
        .find(|t| t.name == chip.cores[0].1);
    if let Some((l2, size)) = first.and_then(|t| t.l2.as_mut()).zip(chip.sizes.l2) {
        l2.size_kib = size;
    }
    for (level, cpu, size) in chip.sizes.shared {
        let caches = machine.cache.iter_mut().filter(|c| c.level == *level);
        let cpu = countersteer_model::units::CpuId(*cpu);
        for cache in caches.filter(|c| c.cpus.contains(cpu)) {
            cache.size_kib = *size;
        }
    }
    Ok(Arc::new(Topology::new(&machine)))
}

fn table() -> Result<Table, Box<dyn Error>> {
    let text = std::fs::read_to_string(root().join("bench/spec2017.tsv"))?;
    let mut table = Table::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let [chip, core, program, _giga, ghz, ipc, _mpki, _branches] =
            line.split('\t').collect::<Vec<_>>()[..]
        else {
            return Err(format!("bench/spec2017.tsv: eight columns expected in `{line}`").into());
        };
        let measured = Measured {
            ghz: ghz.parse()?,
            ipc: ipc.parse()?,
        };
        table.insert((chip.into(), core.into(), program.into()), measured);
    }
    Ok(table)
}
