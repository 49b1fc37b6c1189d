//! `steer sweep`: simulates a grid of experiments in chunks, on any number of machines.

use std::path::PathBuf;

use anyhow::Context;
use countersteer_lab::grid::Grid;
use countersteer_lab::library;
use rayon::prelude::*;

use super::print_json;
use crate::progress;

/// Arguments of `steer sweep`.
#[derive(Debug, clap::Args)]
pub struct SweepArgs {
    /// Grid file (TOML): machines, workloads or mixes, policies, seeds
    #[arg(value_name = "FILE")]
    grid: PathBuf,
    /// Folder of the results; finished runs in it are not repeated
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Run only the chunks I, I+N, I+2N, ..., with I from 0 to N-1, so that N jobs of a batch system share the sweep
    #[arg(long, value_name = "I/N", default_value = "0/1", value_parser = shard)]
    shard: (usize, usize),
    /// Number of worker threads, which does not affect the results; 0: one per CPU
    #[arg(long, default_value_t = 0, value_name = "N")]
    jobs: usize,
    /// Print finished and remaining chunks as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `steer sweep`.
pub fn run(args: &SweepArgs) -> anyhow::Result<()> {
    let text = library::read(&args.grid)?;
    let grid = Grid::parse(&text.path, &text.text)?;
    grid.open(&args.output)?;
    let (shard, shards) = args.shard;
    let missing = grid.missing(&args.output, shard, shards);
    let bar = progress::bar(missing.len() as u64, "simulating");
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(args.jobs)
        .build()
        .context("cannot start a thread")?;
    let run = |chunk: &usize| {
        let done = grid.run_into(&args.output, *chunk);
        bar.inc(1);
        done
    };
    let done = pool.install(|| missing.par_iter().try_for_each(run));
    bar.finish_and_clear();
    done?;
    let left = grid.missing(&args.output, 0, 1).len();
    if args.json {
        return print_json(&serde_json::json!({
            "experiments": grid.len(),
            "chunks": grid.chunks(),
            "chunks_run": missing.len(),
            "chunks_left": left,
        }));
    }
    stderr_line!(
        "steer: {} of {} chunks run now, {left} left, {} experiments in all; results in {}",
        missing.len(),
        grid.chunks(),
        grid.len(),
        args.output.display()
    );
    Ok(())
}

fn shard(text: &str) -> Result<(usize, usize), String> {
    let parts = text.split_once('/');
    let parts = parts.and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    match parts {
        Some((shard, shards)) if shard < shards => Ok((shard, shards)),
        _ => Err("it must be I/N with I from 0 to N-1, such as 0/8".into()),
    }
}
