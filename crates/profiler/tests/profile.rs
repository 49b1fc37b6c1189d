//! Tests of profiles: small C programs of known behaviour are recorded and their profiles checked.
//!
//! The tests need a QEMU with plugin support and a C compiler. Without them they print a message and pass.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

use countersteer_model::profile::{LogHistogram, Recorded, Sharing};
use countersteer_profiler::{
    Measure, ProfileError, ProfileOptions, Profiled, ProgramEnding, profile,
};

mod instrumented;

use instrumented::{options, programs};

fn run(program: &str, arguments: &[&str]) -> Profiled {
    let recording = profile(&options(program, arguments)).unwrap();
    recording.profile.check().unwrap();
    recording
}

/// Returns the misses per kilo-instruction in a fully associative cache of `lines` lines, over the whole run.
fn mpki(profile: &Recorded, lines: f64) -> f64 {
    weighted(profile, |b| {
        profile.behaviours[b]
            .locality
            .stack_distance_pki
            .at_least(lines)
            + profile.behaviours[b].locality.cold_pki
    })
}

fn weighted(profile: &Recorded, value: impl Fn(usize) -> f64) -> f64 {
    let sum: f64 = profile
        .timeline
        .iter()
        .map(|s| value(s.behaviour as usize) * s.instructions as f64)
        .sum();
    sum / profile.instructions as f64
}

/// Returns the misses per round of misses over the whole run.
fn overlap(profile: &Recorded, window: u32, lines: u64) -> f64 {
    let misses = |b: usize| {
        let locality = &profile.behaviours[b].locality;
        locality.stack_distance_pki.at_least(lines as f64) + locality.cold_pki
    };
    let point = |b: usize| {
        profile.behaviours[b]
            .mlp
            .iter()
            .find(|p| p.window == window && p.cache_lines == lines)
    };
    weighted(profile, misses) / weighted(profile, |b| misses(b) / point(b).unwrap().overlap)
}

/// Misses per kilo-instruction of structures with `entries` entries, by the name of what they hold.
fn reached(profile: &Recorded, entries: f64) -> Vec<(&'static str, f64)> {
    let reach = |b: usize| profile.behaviours[b].reach.as_ref().unwrap();
    let names = reach(0).listed().map(|(name, _)| name);
    let misses = |nth: usize| {
        weighted(profile, |b| {
            let (_, reuse) = reach(b).listed()[nth];
            reuse.unwrap().curve().mpki(entries)
        })
    };
    let numbered = names.into_iter().enumerate();
    numbered.map(|(nth, name)| (name, misses(nth))).collect()
}

#[test]
fn pages_have_a_cliff_at_their_number_and_a_small_loop_hits_its_code() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    // 65,536 lines are 1,024 pages of data.
    let profile = run(&program, &["stream", "65536", "30"]).profile;
    let misses = |name, entries| {
        let all = reached(&profile, entries);
        all.into_iter().find(|(n, _)| *n == name).unwrap().1
    };
    let (inside, outside) = (misses("data_pages", 800.0), misses("data_pages", 1300.0));
    assert!(inside > 10.0 * outside, "{inside} {outside}");
    for name in ["code_lines", "branch_targets", "code_pages"] {
        assert!(misses(name, 512.0) < 1.0, "{name}");
    }
}

#[test]
fn a_stream_has_a_cliff_at_its_size_and_overlaps() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    // 8,192 lines, 30 times.
    let profile = run(&program, &["stream", "8192", "30"]).profile;
    let inside = mpki(&profile, 7000.0);
    let outside = mpki(&profile, 9300.0);
    assert!(inside > 20.0, "{inside}");
    assert!(outside < inside / 15.0, "{outside} of {inside}");
    assert!(overlap(&profile, 512, 2048) > 3.0);
    assert!(overlap(&profile, 512, 2048) > overlap(&profile, 64, 2048));
    assert!((profile.shape.threads, profile.shape.serial_share) == (1, 1.0));
    assert!(profile.partial.is_none());
}

#[test]
fn a_chase_has_a_cliff_at_its_size_and_never_overlaps() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let profile = run(&program, &["chase", "4096", "1500000"]).profile;
    let inside = mpki(&profile, 3500.0);
    let outside = mpki(&profile, 4700.0);
    assert!(inside > 10.0 * outside, "{inside} {outside}");
    let overlap = overlap(&profile, 512, 2048);
    assert!((1.0..1.15).contains(&overlap), "{overlap}");
}

#[test]
fn a_matrix_product_is_floating_point_and_fits_its_three_matrices() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let profile = run(&program, &["matmul", "96"]).profile;
    let fp = weighted(&profile, |b| profile.behaviours[b].mix.fp);
    assert!((0.15..0.7).contains(&fp), "{fp}");
    // Three matrices of 96 x 96 doubles are 3,456 lines.
    assert!(
        mpki(&profile, 4000.0) < 0.3 * mpki(&profile, 128.0),
        "{} {}",
        mpki(&profile, 4000.0),
        mpki(&profile, 128.0)
    );
    let ilp: Vec<f64> = profile.behaviours[0].ilp.iter().map(|p| p.ipc).collect();
    assert!(ilp.windows(2).all(|w| w[0] <= w[1] * 1.001), "{ilp:?}");
}

#[test]
fn the_quick_way_agrees_with_exact_distances() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    for arguments in [["mixed", "3000"], ["matmul", "80"]] {
        let quick = run(&program, &arguments).profile;
        let mut exact = options(&program, &arguments);
        exact.measure = Measure::Reference;
        let exact = profile(&exact).unwrap().profile;
        for lines in [128.0, 512.0, 2048.0, 8192.0, 32768.0, 524_288.0] {
            let a = mpki(&quick, lines);
            let b = mpki(&exact, lines);
            assert!(
                (a - b).abs() <= 0.03 * b + 0.05,
                "{arguments:?} {lines}: {a} {b}"
            );
        }
        let total =
            |p: &Recorded| weighted(p, |b| p.behaviours[b].locality.stack_distance_pki.total());
        assert!((total(&quick) / total(&exact) - 1.0).abs() < 0.01);
        for entries in [64.0, 256.0, 512.0, 2048.0] {
            for (a, b) in reached(&quick, entries)
                .into_iter()
                .zip(reached(&exact, entries))
            {
                assert!(
                    (a.1 - b.1).abs() <= 0.2 * b.1 + 0.3,
                    "{arguments:?} {entries}: {a:?} {b:?}"
                );
            }
        }
    }
}

#[test]
fn a_sample_agrees_with_the_exact_recording_and_states_its_errors() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let arguments = ["mixed", "20000"];
    let sampled = || {
        let mut options = options(&program, &arguments);
        options.measure = Measure::Sampled;
        profile(&options).unwrap().profile
    };
    let sample = sampled();
    sample.check().unwrap();
    let text = |p: &Recorded| serde_json::to_string(p).unwrap();
    assert_eq!(text(&sample), text(&sampled()), "it is the same every time");
    let exact = run(&program, &arguments).profile;
    assert!(exact.sampling.is_empty() && sample.instructions == exact.instructions);
    for lines in [512.0, 2048.0, 8192.0, 32768.0, 524_288.0] {
        let (a, b) = (mpki(&sample, lines), mpki(&exact, lines));
        assert!((a - b).abs() <= 0.04 * b + 0.05, "{lines}: {a} {b}");
    }
    let of = |name: &str| sample.sampling.iter().find(|f| f.figure == name).unwrap();
    let branches = |p: &Recorded| weighted(p, |b| p.behaviours[b].branch_mpki);
    let (a, b) = (branches(&sample), branches(&exact));
    let stated = of("branch_mpki");
    assert!(
        (a - b).abs() <= 3.0 * stated.error + 0.1 * b,
        "{a} {b} {stated:?}"
    );
    assert!(of("mpki_512").error > 0.0 && of("ilp_128").error > 0.0);
    // A short run is recorded as a whole.
    let mut short = options(&program, &["matmul", "40"]);
    short.measure = Measure::Sampled;
    let short = profile(&short).unwrap().profile;
    let whole = run(&program, &["matmul", "40"]).profile;
    assert!(short.instructions < 4_000_000 && short.sampling.is_empty());
    assert_eq!(branches(&short), branches(&whole));
    assert_eq!(mpki(&short, 512.0), mpki(&whole, 512.0));
}

#[test]
fn the_same_run_twice_gives_the_same_bytes() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let text = |recording: Profiled| serde_json::to_string(&recording.profile).unwrap();
    let arguments = ["mixed", "2000"];
    assert_eq!(
        text(run(&program, &arguments)),
        text(run(&program, &arguments))
    );
}

#[test]
fn the_limit_ends_the_program_and_marks_the_profile() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let mut options = options(&program, &["forever"]);
    options.max_instructions = Some(5_000_000);
    let recording = profile(&options).unwrap();
    assert_eq!(recording.ending, ProgramEnding::Limit);
    assert!(
        (5_000_000..5_001_000).contains(&recording.instructions),
        "{}",
        recording.instructions
    );
    assert!(recording.profile.partial.unwrap().contains("5000000"));
}

#[test]
fn the_limit_ends_the_children_too() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let mut options = options(
        "sh",
        &["-c", &format!("{program} forever | {program} forever")],
    );
    options.max_instructions = Some(10_000_000);
    assert_eq!(profile(&options).unwrap().ending, ProgramEnding::Limit);
}

#[test]
fn an_interrupt_ends_the_program_and_leaves_a_partial_profile() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let mut options = options(&program, &["forever"]);
    let sent = Cell::new(false);
    options.progress = Some(Box::new(move |instructions| {
        if instructions > 2_000_000 && !sent.replace(true) {
            let _ = Command::new("kill")
                .args(["-INT", &std::process::id().to_string()])
                .status();
        }
    }));
    let recording = profile(&options).unwrap();
    assert_eq!(recording.ending, ProgramEnding::Signaled(2));
    assert_eq!(
        recording.profile.partial.as_deref(),
        Some("interrupted by SIGINT")
    );
    recording.profile.check().unwrap();
}

#[test]
fn what_was_recorded_survives_a_kill_of_the_emulator() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let mut options = options(&program, &["forever"]);
    options.progress = Some(Box::new(|instructions| {
        if instructions > 3_000_000 {
            children()
                .iter()
                .for_each(|pid| drop(Command::new("kill").args(["-KILL", pid]).status()));
        }
    }));
    let recording = profile(&options).unwrap();
    assert_eq!(recording.ending, ProgramEnding::Signaled(9));
    assert!(recording.instructions > 3_000_000);
    recording.profile.check().unwrap();
    assert!(recording.profile.partial.unwrap().contains("SIGKILL"));
}

/// Returns the child processes of this one that run QEMU.
fn children() -> Vec<String> {
    let all = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|e| e.ok()?.file_name().into_string().ok());
    all.filter(|pid| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.contains(&format!("PPid:\t{}\n", std::process::id()))
            && status.contains("Name:\tqemu")
    })
    .collect()
}

#[test]
fn crashes_and_exit_codes_pass_through() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let mut failing = options(&program, &["exit", "7"]);
    for (ignored, partial) in [
        (false, Some("the program failed: exit code 7")),
        (true, None),
    ] {
        failing.ignore_failure = ignored;
        let recording = profile(&failing).unwrap();
        assert_eq!(recording.ending, ProgramEnding::Exited(7));
        assert_eq!(recording.profile.partial.as_deref(), partial);
    }
    let crash = run(&program, &["crash"]);
    assert_eq!(
        (crash.ending, crash.ending.code()),
        (ProgramEnding::Signaled(11), 139)
    );
    assert_eq!(crash.profile.partial.as_deref(), Some("killed by SIGSEGV"));
}

#[test]
fn the_emulators_own_settings_do_not_reach_the_program() {
    let Some(_turn) = programs() else {
        return;
    };
    let check = r#"test "$MALLOC_ARENA_MAX" = "$1""#;
    let twice = format!(r#"{check} && exec sh -c '{check}' sh "$1""#);
    for own in [None, Some("4")] {
        let mut options = options("sh", &["-c", &twice, "sh", own.unwrap_or_default()]);
        options
            .env
            .extend(own.map(|own| ("MALLOC_ARENA_MAX".to_owned(), own.to_owned())));
        let ending = profile(&options).unwrap().ending;
        assert_eq!(ending, ProgramEnding::Exited(0), "{own:?}");
    }
}

#[test]
fn threads_are_followed() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let one = run(&program, &["threads", "1", "3000000"]);
    let three = run(&program, &["threads", "3", "3000000"]);
    assert_eq!(
        (one.profile.shape.threads, three.profile.shape.threads),
        (2, 4)
    );
    let share = (three.instructions - one.instructions) as f64 / one.instructions as f64;
    assert!((1.8..2.1).contains(&share), "{share}");
    assert!(
        one.profile.shape.serial_share > 0.7,
        "{}",
        one.profile.shape.serial_share
    );
    assert!(
        three.profile.shape.serial_share < 0.5,
        "{}",
        three.profile.shape.serial_share
    );
    let shape = &three.profile.shape;
    assert!(
        (shape.runnable.iter().sum::<f64>() - 1.0).abs() < 0.01,
        "{shape:?}"
    );
    assert!(shape.runnable[1..].iter().sum::<f64>() > 0.2, "{shape:?}");
    assert!(
        (shape.serial_by.iter().sum::<f64>() - 1.0).abs() < 0.01,
        "{shape:?}"
    );
}

#[test]
fn shared_data_and_own_data_of_threads_are_distinguished() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let of = |kind: &str| {
        let profile = run(&program, &["shared", kind, "2", "4096", "300000"]).profile;
        let behaviours = profile.behaviours.into_iter();
        let parallel = behaviours.filter_map(|b| b.sharing);
        parallel.max_by(|a, b| {
            let accesses = |s: &Sharing| s.shared + s.invalidated_pki.total();
            accesses(a).total_cmp(&accesses(b))
        })
    };
    let (own, common, written) = (of("own"), of("common"), of("written"));
    let (own, common, written) = (own.unwrap(), common.unwrap(), written.unwrap());
    assert!(own.shared < 0.1, "{own:?}");
    // On a busy host the threads run in turns, and reach some lines only after the other one has left them.
    assert!(common.shared > 0.5, "{common:?}");
    assert!(written.shared > 0.5, "{written:?}");
    let quiet = own
        .invalidated_pki
        .total()
        .max(common.invalidated_pki.total());
    let lost = written.invalidated_pki.total();
    assert!(quiet < 1.0 && lost > 5.0 * quiet.max(0.2), "{quiet} {lost}");
}

#[test]
fn forked_and_executed_children_are_followed() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let alone = run(&program, &["stream", "512", "200"]).instructions;
    for mode in ["fork", "spawn"] {
        let both = run(&program, &[mode]);
        // A parent and a child; the child is the stream program above.
        assert!(
            both.instructions > alone,
            "{mode}: {} {alone}",
            both.instructions
        );
        assert!(
            both.instructions < alone + alone / 2,
            "{mode}: {} {alone}",
            both.instructions
        );
        assert_eq!(both.profile.shape.threads, 2, "{mode}");
    }
}

#[test]
fn a_child_that_cannot_be_recorded_leaves_its_parents_record_alone() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    if !nix::unistd::geteuid().is_root() {
        countersteer_fuzz::skipped("needs root for chroot");
        return;
    }
    let jail = tempfile::tempdir().unwrap();
    let with_child_of = |passes| {
        let jail = jail.path().to_str().unwrap();
        let mut options = options(&program, &["jail", jail, passes]);
        let sent = std::sync::Arc::new(Mutex::new(0));
        let into = sent.clone();
        let sink = move |head: countersteer_cache::wire::BlockHead, _: &[u32]| {
            *into.lock().unwrap() += u64::from(head.instructions);
            true
        };
        options.stream = Some((8, std::sync::Arc::new(Mutex::new(sink))));
        let recording = profile(&options).unwrap();
        assert_eq!(recording.ending, ProgramEnding::Exited(0));
        assert_eq!(*sent.lock().unwrap(), recording.instructions);
        recording.instructions
    };
    // The child executes millions of instructions more; its parent executes a few to read its argument.
    let counts = ["100", "900"].map(with_child_of);
    assert!(counts[0].abs_diff(counts[1]) < 100, "{counts:?}");
}

#[test]
fn a_process_that_was_killed_is_not_runnable() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    // All instructions of the child before it is killed are serial, too.
    for signal in ["9", "15"] {
        let shape = run(&program, &["kill", signal, "5000000"]).profile.shape;
        assert_eq!(shape.threads, 2, "{shape:?}");
        assert!(shape.serial_share > 0.9, "signal {signal}: {shape:?}");
    }
}

#[test]
fn pipelines_and_scripts_are_followed() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let alone = run(&program, &["stream", "512", "200"]).instructions;
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    std::fs::write(
        &script,
        format!("#!/bin/sh -e\n{program} stream 512 200 | {program} stream 512 200\nexit 3\n"),
    )
    .unwrap();
    assert!(
        Command::new("chmod")
            .arg("+x")
            .arg(&script)
            .status()
            .unwrap()
            .success()
    );
    let recording = run("sh", &["-c", &script.display().to_string()]);
    assert_eq!(recording.ending, ProgramEnding::Exited(3));
    assert!(
        recording.instructions > 2 * alone,
        "{} {alone}",
        recording.instructions
    );
    let direct = run(&script.display().to_string(), &[]);
    assert_eq!(direct.ending, ProgramEnding::Exited(3));
}

#[test]
fn processes_that_a_wrapper_has_had_are_not_counted() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    // A forked shell that ends, a program that does, and one in a pipeline.
    for (nth, before) in ["( : )", "name=$(uname -m)", "uname -m | cat >/dev/null"]
        .into_iter()
        .enumerate()
    {
        let script = directory.path().join(format!("wrapper{nth}"));
        let text = format!("#!/bin/bash\n{before}\nexec {program} stream 512 200\n");
        std::fs::write(&script, text).unwrap();
        let executable = Command::new("chmod").arg("+x").arg(&script).status();
        assert!(executable.unwrap().success());
        let recording = run(&script.display().to_string(), &[]);
        assert_eq!(recording.ending, ProgramEnding::Exited(0));
        assert_eq!(recording.profile.shape.threads, 1, "{before}");
        assert!(recording.wrapper_instructions > 0, "{before}");
    }
}

#[test]
fn a_compiler_is_followed_into_its_passes() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let directory = PathBuf::from(&program).parent().unwrap().to_owned();
    std::fs::write(directory.join("tiny.c"), "int main(void) { return 0; }\n").unwrap();
    let mut options = options("cc", &["-O2", "tiny.c", "-o", "tiny"]);
    options.workdir = Some(directory.clone());
    let recording = profile(&options).unwrap();
    assert_eq!(recording.ending, ProgramEnding::Exited(0));
    assert!(
        recording.profile.shape.threads >= 4,
        "driver, compiler, assembler, linker: {}",
        recording.profile.shape.threads
    );
    assert!(
        Command::new(directory.join("tiny"))
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn programs_that_are_not_there_are_named() {
    let Some((_turn, _)) = programs() else { return };
    assert!(matches!(
        profile(&options("no-such-program", &[])),
        Err(ProfileError::NotFound { .. })
    ));
    assert!(matches!(
        profile(&ProfileOptions::new(Vec::new())),
        Err(ProfileError::EmptyCommand)
    ));
    assert_eq!(LogHistogram::default().total(), 0.0);
}

#[test]
fn what_threads_send_is_all_that_they_execute_and_the_same_each_time() {
    use std::collections::HashMap;

    use countersteer_cache::wire::{BlockHead, Decoder, ENDS, WireKind};
    let Some((_turn, program)) = programs() else {
        return;
    };
    let sent = || {
        let blocks = std::sync::Arc::new(Mutex::new(Vec::<(BlockHead, Vec<u32>)>::new()));
        let into = blocks.clone();
        let mut options = options(&program, &["stream", "512", "200"]);
        options.stream = Some((
            8,
            std::sync::Arc::new(Mutex::new(move |head, words: &[u32]| {
                into.lock().unwrap().push((head, words.to_vec()));
                true
            })),
        ));
        let recording = profile(&options).unwrap();
        let blocks = std::mem::take(&mut *blocks.lock().unwrap());
        (recording, blocks)
    };
    let (recording, blocks) = sent();
    let executed: u64 = blocks
        .iter()
        .map(|(head, _)| u64::from(head.instructions))
        .sum();
    assert_eq!(executed, recording.instructions);
    assert!(blocks.last().unwrap().0.flags & ENDS != 0);
    for (head, words) in &blocks {
        let mut decoder = Decoder::new(words);
        let mut gaps = 0;
        while let Some(event) = decoder.next_event().unwrap() {
            gaps += event.gap;
        }
        assert!(gaps <= head.instructions);
    }
    // Lines by the order of their first access: QEMU 10 places some mappings where its own threads leave room at that moment.
    let events = |blocks: &[(BlockHead, Vec<u32>)]| -> Vec<(u32, WireKind, usize)> {
        let mut lines = HashMap::new();
        let mut events = Vec::new();
        for (_, words) in blocks {
            let mut decoder = Decoder::new(words);
            while let Some(event) = decoder.next_event().unwrap() {
                let next = lines.len();
                let line = *lines.entry(event.line).or_insert(next);
                events.push((event.gap, event.what, line));
            }
        }
        events
    };
    assert!(events(&blocks) == events(&sent().1));
}

#[test]
fn a_sink_that_has_enough_ends_the_program() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let mut options = options(&program, &["forever"]);
    let mut blocks = 0;
    options.stream = Some((
        8,
        std::sync::Arc::new(Mutex::new(move |_, _: &[u32]| {
            blocks += 1;
            blocks < 5
        })),
    ));
    assert_eq!(profile(&options).unwrap().ending, ProgramEnding::Limit);
}
