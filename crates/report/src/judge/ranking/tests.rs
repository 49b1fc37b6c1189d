use super::*;
use crate::table::CompareProgram;

/// Returns a run with these completion times; alone each program takes a second.
fn run(policy: &str, seed: u64, times: [f64; 2]) -> CompareRun {
    let names = ["xz", "gzip"];
    let program = |(name, time): (&str, f64)| CompareProgram {
        name: name.into(),
        completion_s: time,
        alone_fast_s: 1.0,
        alone_slow_s: 1.0,
        sf_interval: None,
        slowdown: time,
        sampled: None,
    };
    let programs: Vec<_> = names.into_iter().zip(times).map(program).collect();
    CompareRun {
        machine: "m".into(),
        workload: "w".into(),
        policy: policy.into(),
        seed,
        asp: 0.0,
        stp: times.iter().map(|t| 1.0 / t).sum(),
        sustained_stp: None,
        bound_stp: None,
        best_partition_stp: None,
        antt: times.iter().sum::<f64>() / 2.0,
        unfairness: 1.0,
        weighted_unfairness: 1.0,
        jain: 1.0,
        ipc: 1.0,
        energy_j: 10.0,
        energy_per_instruction_nj: 1.0,
        energy_per_run_j: 5.0,
        edp_js: 1.0,
        migrations: 0,
        acted: None,
        programs,
    }
}

fn ranking(policies: &[(&str, [[f64; 2]; 2])]) -> Ranking {
    let runs: Vec<CompareRun> = policies
        .iter()
        .flat_map(|(policy, seeds)| {
            (1..)
                .zip(seeds)
                .map(|(seed, times)| run(policy, seed, *times))
        })
        .collect();
    judge(&runs, &Facts::default()).remove(0)
}

const LINUX: (&str, [[f64; 2]; 2]) = ("linux", [[2.0, 2.0], [4.0, 4.0]]);

#[test]
fn policies_that_left_everything_to_linux_are_named() {
    let acted = |policy: &str, seed, acted| CompareRun {
        acted: Some(acted),
        ..run(policy, seed, [2.0, 2.0])
    };
    let runs = [
        acted("linux", 1, false),
        acted("linux", 2, false),
        acted("hsf", 1, false),
        acted("hsf", 2, false),
        acted("joint", 1, false),
        acted("joint", 2, true),
    ];
    let policies = vec!["hsf".to_owned()];
    let ranking = judge(&runs, &Facts::default()).remove(0);
    assert!(ranking.remarks.contains(&Remark::Abstained { policies }));
}

#[test]
fn what_a_policy_takes_for_granted_is_a_remark_of_its_machine_alone() {
    let runs = [run("linux", 1, [2.0, 2.0]), run("mpi", 1, [2.0, 2.0])];
    let unmet = vec![("mpi".to_owned(), "cores differ".to_owned())];
    let remarks = |machine: &str| {
        let facts = Facts {
            unmet: BTreeMap::from([(machine.to_owned(), unmet.clone())]),
            ..Facts::default()
        };
        judge(&runs, &facts).remove(0).remarks
    };
    let said = remarks("m");
    assert_eq!(said.len(), 1);
    assert_eq!(said[0].words(), "mpi is not made for this: cores differ.");
    assert!(remarks("another").is_empty());
}

#[test]
fn seeds_are_compared_with_the_same_seed_and_losers_are_named() {
    let r = ranking(&[LINUX, ("hsf", [[1.0, 2.2], [2.0, 4.4]])]);
    let best = r.best().unwrap();
    assert!((best.throughput.min - best.throughput.max).abs() < 1e-12);
    assert_eq!(r.verdict, Verdict::Use);
    let said = r.sentence();
    assert!(
        said.starts_with("Use hsf: +45 % throughput")
            && said.contains("worst loser gzip -9.1 % (90 %:"),
        "{said}"
    );
}

#[test]
fn what_only_a_simulator_can_run_never_wins() {
    let r = ranking(&[
        LINUX,
        ("best-static", [[1.0, 1.0], [1.0, 1.0]]),
        ("aarr", [[2.0, 2.0], [4.0, 4.0]]),
    ]);
    assert_eq!(
        (r.best().unwrap().policy.as_str(), &r.verdict),
        ("aarr", &Verdict::LeaveToLinux)
    );
    assert!(
        r.sentence().contains("no policy gains anything"),
        "{}",
        r.sentence()
    );
    assert_eq!(r.simulator_only[0].policy, "best-static");
}

#[test]
fn luck_and_longer_waits_are_no_recommendation() {
    let unsure = ranking(&[LINUX, ("hsf", [[1.0, 1.0], [4.2, 4.2]])]);
    assert_eq!(unsure.verdict, Verdict::Unsure);
    let costly = ranking(&[LINUX, ("hsf", [[1.0, 4.0], [2.0, 8.0]])]);
    assert_eq!(costly.verdict, Verdict::Costly);
    assert!(
        costly.sentence().contains("mean slowdown changes by +25 %"),
        "{}",
        costly.sentence()
    );
    let alone = ranking(&[("hsf", [[1.0, 1.0], [1.0, 1.0]])]);
    assert_eq!(alone.verdict, Verdict::NoBaseline);
}

#[test]
fn shorter_waits_at_the_same_throughput_are_worth_a_word() {
    let r = ranking(&[
        LINUX,
        ("mpi", [[1.2, 6.0], [2.4, 12.0]]),
        ("aarr", [[2.0, 2.0], [4.0, 4.0]]),
    ]);
    assert_eq!(r.verdict, Verdict::LeaveToLinux, "{}", r.sentence());
    let mut linux = LINUX;
    linux.1 = [[1.0, 20.0], [1.0, 20.0]];
    let r = ranking(&[linux, ("mpi", [[1.5, 2.7], [1.5, 2.7]])]);
    assert_eq!(r.verdict, Verdict::Waits);
    assert!(
        r.sentence().starts_with("Use mpi if waiting counts more"),
        "{}",
        r.sentence()
    );
}

#[test]
fn programs_that_end_before_a_policy_acts_get_no_advice() {
    let times = |f: f64| [[2.0 * f, 2.0 * f], [4.0 * f, 4.0 * f]];
    let of = |f: f64| ranking(&[("linux", times(f)), ("hsf", times(f / 2.0))]);
    assert_eq!(of(1.0).verdict, Verdict::Use);
    let short = of(0.01);
    assert_eq!(short.verdict, Verdict::TooShort);
    let said = short.sentences().join(" ");
    assert!(
        said.contains("must run for at least 1 s") && said.contains("No advice"),
        "{said}"
    );
    // A program that is long enough is judged alone: here it gains nothing.
    let linux = ("linux", [[0.1, 9.0], [0.1, 9.0]]);
    let r = ranking(&[linux, ("hsf", [[0.05, 9.0], [0.05, 9.0]])]);
    assert_eq!(r.verdict, Verdict::TooShort);
    let r = ranking(&[linux, ("hsf", [[0.05, 6.0], [0.05, 6.0]])]);
    assert_eq!(r.verdict, Verdict::Use);
}

#[test]
fn one_program_that_makes_most_of_a_gain_is_named() {
    let most = |times: [f64; 2]| {
        let r = ranking(&[("linux", [[2.0, 2.0]; 2]), ("hsf", [times; 2])]);
        r.sentences()
            .into_iter()
            .find(|s| s.starts_with("Most of what hsf gains is"))
    };
    assert_eq!(most([1.5, 1.5]), None);
    let said = most([1.2, 1.98]).unwrap();
    assert!(said.contains("is xz: without it +1.0 %"), "{said}");
}

#[test]
fn a_gain_within_the_spread_over_seeds_is_no_reason() {
    let linux = ("linux", [[2.0, 2.0]; 2]);
    let noisy = ranking(&[linux, ("hsf", [[1.8, 1.8], [2.2, 2.15]])]);
    assert_eq!(noisy.verdict, Verdict::Unsure, "{}", noisy.sentence());
    let calm = ranking(&[linux, ("hsf", [[1.95, 1.95], [1.94, 1.95]])]);
    assert_eq!(calm.verdict, Verdict::Use, "{}", calm.sentence());
}

#[test]
fn what_comes_from_the_start_and_what_was_left_out_is_said() {
    let runs = |policy: &str, time: f64| {
        (1..=2)
            .map(|seed| run(policy, seed, [time; 2]))
            .collect::<Vec<_>>()
    };
    let probed = |probe, run| Probed { probe, run };
    let start = runs("hsf", 1.9)
        .into_iter()
        .map(|r| probed(ProbingGap::Start, r));
    let fair = [runs("linux", 1.7), runs("hsf", 1.6)].concat();
    let fair = fair.into_iter().map(|r| probed(ProbingGap::FairLaunch, r));
    let facts = Facts {
        probed: start.chain(fair).collect(),
        shelves: BTreeMap::from([(
            "m".to_owned(),
            ["linux", "hsf", "joint", "best-static"]
                .map(str::to_owned)
                .to_vec(),
        )]),
        pinned: vec!["w".to_owned()],
        ..Facts::default()
    };
    let all = [runs("linux", 2.0), runs("hsf", 1.6)].concat();
    let said = judge(&all, &facts).remove(0).sentences().join("\n");
    for part in [
        "Of the +25 points, +5.3 (90 %: ",
        "Where Linux chooses, hsf gains +6.2 % throughput",
        "Not compared, though they have something to do here: joint.",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
