//! Makes a report, a trace and a record of synthetic runs for inspection: `cargo run --example synthetic -- FOLDER`.

#[path = "../tests/report/synthetic.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "shared with the tests")]
mod synthetic;

use std::path::PathBuf;

use countersteer_report::html::{Axis, ReportInput, render};
use countersteer_report::judge::Facts;
use countersteer_report::record::{Detail, Record};
use countersteer_report::table::{self, CompareRun};
use countersteer_report::{perfetto, profile_view, why, write_atomically};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = PathBuf::from(std::env::args().nth(1).ok_or("name a folder to write to")?);
    std::fs::create_dir_all(&dir)?;
    let mut records: Vec<Record> = Vec::new();
    for (machine, programs) in [(synthetic::HYBRID, 10), (synthetic::CHIPLETS, 20)] {
        for policy in ["linux", "fastest-first"] {
            for seed in 1..=5 {
                records.push(synthetic::record(
                    machine,
                    policy,
                    programs,
                    seed,
                    Detail::Everything,
                ));
            }
        }
    }
    let runs: Vec<CompareRun> = records.iter().map(CompareRun::of_record).collect();
    let drawn = records.iter().filter(|r| r.manifest.seed == 1).collect();
    let title = "Made-up programs on two machines".to_owned();
    write_atomically(
        &dir.join("report.html"),
        render(&ReportInput {
            title,
            runs: &runs,
            records: drawn,
            axis: Axis::Time,
            facts: Facts::default(),
        })?
        .as_bytes(),
    )?;
    write_atomically(
        &dir.join("trace.perfetto-trace"),
        &perfetto::export(&records[5]),
    )?;
    records[5].save(&dir.join("run.rec"))?;
    let (_, profile) = records[0].profiles()?.remove(0);
    write_atomically(
        &dir.join("curve.svg"),
        profile_view::svg(&profile)?.as_bytes(),
    )?;
    println!(
        "{}\n{}",
        table::comparison(&runs),
        table::programs(&runs[0])
    );
    println!(
        "{}\n{}",
        why::why(&records[5], "525.x264_r", 5.0)?,
        profile_view::text(&profile)
    );
    Ok(())
}
