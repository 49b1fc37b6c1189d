//! Accuracy of miss curves from sampled reuse distances: `cargo run --release -p countersteer-lab --example reuse -- PERIOD TRACE...`.
//!
//! TRACEs hold all accesses (`steer trace record --filter 0`). A simulated sampler takes one access in PERIOD and watches four lines
//! at a time. The reference is the exact LRU stack distance of every access of the same trace.

use std::fs::File;
use std::io::BufReader;

use anyhow::Context;
use countersteer_cache::private::AccessKind;
use countersteer_cache::stack::Stack;
use countersteer_cache::trace::TraceBlocks;
use countersteer_cache::wire::{Decoder, WireKind};
use countersteer_model::profile::reuse::{StackDistances, Watches};

/// Lines that are watched at a time.
const WATCHED: usize = 4;
/// Cache sizes that are compared, in lines: 256 KiB to 16 MiB.
const SIZES: [u64; 4] = [4096, 16_384, 65_536, 262_144];

fn main() -> anyhow::Result<()> {
    println!(
        "| program | M accesses | watched | {} |",
        SIZES.map(|lines| format!("{} KiB", lines / 16)).join(" | ")
    );
    println!("|---|---:|---:|{}", "---:|".repeat(SIZES.len()));
    let mut arguments = std::env::args().skip(1);
    let period: u64 = arguments.next().context("PERIOD is missing")?.parse()?;
    for path in arguments {
        let file = File::open(&path).with_context(|| path.clone())?;
        let mut reader = TraceBlocks::new(&path, BufReader::new(file))?;
        let mut exact = Stack::new(1.0);
        let mut sampler = Watches::new(WATCHED, 1);
        let mut now = 0;
        while let Some((_, words)) = reader.next_block()? {
            let mut decoder = Decoder::new(&words);
            while let Some(event) = decoder
                .next_event()
                .map_err(|e| anyhow::anyhow!("{path}: {}", e.why))?
            {
                if let WireKind::Access(AccessKind::Load | AccessKind::Store) = event.what {
                    exact.touch(event.line);
                    now += 1;
                    sampler.again(now, event.line);
                    if now % period == 0 {
                        sampler.sample(now, event.line, || Some(()));
                    }
                }
            }
        }
        sampler.end(now);
        let watched = sampler.found.len();
        let found = StackDistances::of(&sampler.found).context("no access was sampled")?;
        let both = SIZES.map(|lines| {
            format!(
                "{:.3} ({:.3})",
                100.0 * found.at_least(lines as f64),
                100.0 * exact.miss_ratio(lines)
            )
        });
        let name = path
            .rsplit('/')
            .next()
            .unwrap_or(&path)
            .trim_end_matches(".trace");
        println!(
            "| {name} | {:.0} | {watched} | {} |",
            exact.accesses() as f64 * 1e-6,
            both.join(" | ")
        );
    }
    Ok(())
}
