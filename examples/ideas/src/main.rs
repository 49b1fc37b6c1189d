//! Runs one of the examples by its name: `cargo run -p ideas -- compare_policies`. Each file beside this one is a module with the
//! whole program of one idea in its `main`.

use std::process::ExitCode;

/// Declares the examples, and the table of their names.
macro_rules! examples {
    ($($name:ident),* $(,)?) => {
        $(mod $name;)*
        /// Names and functions of the examples.
        const EXAMPLES: &[(&str, fn() -> anyhow::Result<()>)] = &[$((stringify!($name), $name::main)),*];
    };
}

examples! {
    blame,
    cache_partition,
    compare_policies,
    cpu_sets,
    frequency,
    kept_as_json,
    kernel_releases,
    machine_file,
    metric_formula,
    miss_curve,
    nice_levels,
    own_policy,
    phases_of_a_profile,
    shared_cache,
    speed_up_factor,
    stack_distances,
    steer_a_program,
    stop_when_sure,
    sweep_of_seeds,
    upper_bound,
    why_a_thread_moved,
}

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let Some((_, example)) = EXAMPLES.iter().find(|(known, _)| *known == name) else {
        let names: Vec<&str> = EXAMPLES.iter().map(|(known, _)| *known).collect();
        eprintln!("name one of the examples: {}", names.join(", "));
        return ExitCode::from(2);
    };
    match example() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
