//! CPU time of stack distances and of the forest, each measured alone; reading the trace is not counted.
//!
//! `cargo run --release -p countersteer-cache --example curves -- TRACE...`

use std::error::Error;
use std::fs::File;
use std::io::BufReader;

use countersteer_cache::curve::{AccessSide, Curve};
use countersteer_cache::trace::TraceBlocks;
use countersteer_cache::wire::{Decoder, WireKind};

/// CPU time of this thread so far, in nanoseconds; Linux only.
fn cpu_ns() -> Result<u64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = text.split_whitespace().next();
    Ok(first
        .ok_or("/proc/thread-self/schedstat is empty")?
        .parse()?)
}

/// Lines of all data accesses in a trace, in order.
fn lines(path: &str) -> Result<Vec<u64>, Box<dyn Error>> {
    let mut blocks = TraceBlocks::new(path, BufReader::new(File::open(path)?))?;
    let mut lines = Vec::new();
    while let Some((_, words)) = blocks.next_block()? {
        let mut decoder = Decoder::new(&words);
        while let Some(event) = decoder.next_event()? {
            if let WireKind::Access(access) = event.what
                && AccessSide::Data.takes(access)
            {
                lines.push(event.line);
            }
        }
    }
    Ok(lines)
}

/// Returns the CPU seconds that a curve takes for these lines.
fn seconds(lines: &[u64], stack: bool, forest: bool) -> Result<f64, Box<dyn Error>> {
    let mut curve = Curve::new(AccessSide::Data, stack.then_some(1.0), forest);
    let before = cpu_ns()?;
    lines.iter().for_each(|line| curve.touch(*line));
    let after = cpu_ns()?;
    // `black_box` uses the result, so that the compiler cannot remove the work.
    std::hint::black_box(&curve);
    Ok((after - before) as f64 * 1e-9)
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("trace\taccesses\tstack s\tM/s\tforest s\tM/s");
    for path in std::env::args().skip(1) {
        let lines = lines(&path)?;
        let stack = seconds(&lines, true, false)?;
        let forest = seconds(&lines, false, true)?;
        let millions = lines.len() as f64 * 1e-6;
        println!(
            "{path}\t{}\t{stack:.2}\t{:.1}\t{forest:.2}\t{:.1}",
            lines.len(),
            millions / stack,
            millions / forest
        );
    }
    Ok(())
}
