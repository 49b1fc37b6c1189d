#[path = "bench/runner.rs"]
#[allow(dead_code)]
mod runner;
use countersteer_sim::engine::Plan;
use rand::{RngExt, SeedableRng};
use runner::{Setup, machine, profiles, program};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let name = &a[1];
    let scale: f64 = a[2].parse().unwrap();
    let topology = machine(name).unwrap();
    let recorded = profiles("recorded").unwrap();
    let detail = a.len() > 5;
    let from: u64 = a[3].parse().unwrap();
    let to: u64 = a[4].parse().unwrap();
    for mix in from..=to {
        let mut rng = rand_pcg::Pcg64::seed_from_u64(mix);
        let cpus = topology.cpus.len();
        let mut plan = Plan::default();
        for i in 0..rng.random_range(cpus.div_ceil(2)..=cpus + cpus / 2) {
            let profile = &recorded[rng.random_range(0..recorded.len())];
            let mut p = program(&format!("p{i}-{}", profile.name()), profile);
            p.scale = scale;
            plan.programs.push(p);
        }
        let setup = Setup {
            seed: 1,
            ..Setup::default()
        };
        let mut base = (0.0, 0.0);
        for policy in std::env::var("P")
            .unwrap_or("linux|hsf|hsf:sf=oracle|joint".into())
            .split("|")
        {
            let t = std::time::Instant::now();
            let (_, s) = runner::run(&topology, &plan, policy, setup).unwrap();
            let sus = s.sustained_stp.unwrap_or(f64::NAN);
            if policy == "linux" {
                base = (s.stp, sus);
            }
            println!(
                "mix {mix} n {} cpus {cpus} {policy:20} stp {:.3} ({:+.1}) sustained {:.3} ({:+.1}) asp {:.3} unf {:.2} cpu {:.1}s",
                plan.programs.len(),
                s.stp,
                (s.stp / base.0 - 1.0) * 100.0,
                sus,
                (sus / base.1 - 1.0) * 100.0,
                s.asp,
                s.unfairness,
                t.elapsed().as_secs_f64()
            );
            if detail {
                for p in &s.programs {
                    println!(
                        "   {:30} slow {:.3} runs {} compl {:.4} fast {:.4} slowcore {:.4}",
                        p.name, p.slowdown, p.runs, p.completion_s, p.alone_fast_s, p.alone_slow_s
                    );
                }
            }
        }
    }
}
