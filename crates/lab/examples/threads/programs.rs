//! Synthetic parallel programs on simulated machines: barriers, work stealing, pipelines, memory-bound ones.
//!
//! Input: a structure and the recorded profile of its instructions. Output: seconds with a candidate, simulated with Linux.

use std::fmt::Write;
use std::sync::Arc;

use countersteer_lab::experiment::Onlooker;
use countersteer_lab::threads::candidates::Candidate;
use countersteer_lab::{Experiment, LoadedMachine, SimOptions, plan};
use countersteer_model::policy::policy_rng;
use rand::RngExt;

/// Instructions of a run.
const INSTRUCTIONS: f64 = 40e9;
/// Runs of a candidate, each of which Linux places differently.
const SEEDS: u64 = 3;

/// Program with its structure.
#[derive(Clone, Debug)]
pub struct Structured {
    profile: &'static str,
    kind: Kind,
    /// Share of the work that one thread does; in a pipeline that of its serial stage.
    serial: f64,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Equal shares, and this number of barriers.
    Barriers(u32),
    /// Chunks of this size in millions of instructions, and a number of barriers.
    Chunks(f64, u32),
    /// A serial stage beside workers that take chunks.
    Pipeline(f64),
}

impl std::fmt::Display for Structured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let structure = match self.kind {
            Kind::Barriers(1) => "equal shares".to_owned(),
            Kind::Barriers(count) => format!("{count} barriers"),
            Kind::Chunks(mi, 1) => format!("chunks of {mi} M"),
            Kind::Chunks(mi, count) => format!("chunks of {mi} M, {count} barriers"),
            Kind::Pipeline(_) => "pipeline".to_owned(),
        };
        write!(f, "{}: {structure}", self.profile)?;
        if self.serial > 0.0 {
            write!(f, ", {:.1} % serial", 100.0 * self.serial)?;
        }
        Ok(())
    }
}

/// The twelve programs.
pub fn shipped() -> Vec<Structured> {
    let of = |profile, kind, serial| Structured {
        profile,
        kind,
        serial,
    };
    vec![
        of("bodies", Kind::Barriers(2000), 0.0),
        of("matmul", Kind::Barriers(50), 0.05),
        of("stencil", Kind::Barriers(100), 0.0),
        of("povray", Kind::Barriers(1), 0.01),
        of("stockfish", Kind::Chunks(2.0, 1), 0.0),
        of("gcc", Kind::Chunks(1.0, 20), 0.02),
        of("xz", Kind::Chunks(400.0, 5), 0.0),
        of("zstd", Kind::Pipeline(2.0), 0.05),
        of("x264", Kind::Pipeline(4.0), 0.15),
        of("stream", Kind::Barriers(20), 0.0),
        of("stream", Kind::Chunks(1.0, 1), 0.0),
        of("chase", Kind::Chunks(1.0, 1), 0.01),
    ]
}

/// Twelve random programs, four of each kind.
pub fn drawn(seed: u64) -> Vec<Structured> {
    const PROFILES: [&str; 16] = [
        "bodies",
        "matmul",
        "stencil",
        "povray",
        "stockfish",
        "gcc",
        "xz",
        "zstd",
        "x264",
        "stream",
        "chase",
        "sieve",
        "mix",
        "sort",
        "bzip2",
        "flac",
    ];
    let mut rng = policy_rng(seed);
    let mut log = |from: f64, to: f64| from * (to / from).powf(rng.random::<f64>());
    let mut programs = Vec::new();
    for nth in 0..12 {
        let profile = PROFILES[(log(1.0, std::f64::consts::E).ln() * 16.0) as usize % 16];
        let serial = log(0.002, 0.2);
        let kind = match nth % 3 {
            0 => Kind::Barriers(log(1.0, 300.0) as u32),
            1 => Kind::Chunks(log(0.5, 50.0), log(1.0, 30.0) as u32),
            _ => Kind::Pipeline(log(0.5, 10.0)),
        };
        programs.push(Structured {
            profile,
            kind,
            serial: if nth % 2 == 0 { serial } else { 0.0 },
        });
    }
    programs
}

impl Structured {
    /// Mean seconds of runs with a candidate.
    pub fn seconds(&self, machine: &Arc<LoadedMachine>, to: &Candidate) -> anyhow::Result<f64> {
        let mut sum = 0.0;
        for seed in 1..=SEEDS {
            sum += self.run_s(machine, to, seed)?;
        }
        Ok(sum / SEEDS as f64)
    }

    fn run_s(
        &self,
        machine: &Arc<LoadedMachine>,
        to: &Candidate,
        seed: u64,
    ) -> anyhow::Result<f64> {
        let mut workload = plan::of_text("threads", self.text(to)?)?;
        for (program, profile) in &mut workload.programs {
            program.scale *= INSTRUCTIONS / profile.instructions() as f64;
        }
        let cpus: Vec<String> = to.cpus.iter().map(|cpu| cpu.0.to_string()).collect();
        let policy = if to.confined {
            format!("static:*={}", cpus.join("+"))
        } else {
            "linux".into()
        };
        let experiment = Experiment {
            machine: Arc::clone(machine),
            workload: Arc::new(workload),
            policy,
            seed,
            options: SimOptions {
                rounds: 1,
                ..SimOptions::default()
            },
            detail: None,
        };
        let finished = experiment.run_watched(Onlooker {
            once: true,
            ..Onlooker::default()
        })?;
        Ok(finished
            .score
            .programs
            .iter()
            .map(|program| program.completion_s)
            .fold(0.0, f64::max))
    }

    fn text(&self, to: &Candidate) -> anyhow::Result<String> {
        let mut text = String::new();
        let mut program = |threads: usize, scale: f64, rest: &str| {
            let profile = self.profile;
            let place = if to.confined {
                format!("launch_on = \"{}\"\n", to.cpus)
            } else {
                String::new()
            };
            writeln!(
                text,
                "[[program]]\nprofile = \"../profiles/recorded/{profile}.json\"\nthreads = {threads}\nscale = {scale}\n{place}{rest}"
            )
        };
        let serial = self.serial;
        let threads = to.threads;
        match self.kind {
            Kind::Barriers(count) => program(
                threads,
                1.0,
                &format!("serial_share = {serial}\nbarriers = {count}\n"),
            )?,
            Kind::Chunks(mi, count) => program(
                threads,
                1.0,
                &format!("serial_share = {serial}\nbarriers = {count}\nchunk_mi = {mi}\n"),
            )?,
            Kind::Pipeline(mi) => {
                if serial > 0.0 {
                    program(1, serial, "")?;
                }
                let rest = format!("serial_share = 0.0\nchunk_mi = {mi}\n");
                program(threads, 1.0 - serial, &rest)?;
            }
        }
        Ok(text)
    }
}
