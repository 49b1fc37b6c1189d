//! Tests of caveats: the profile lists the differences from a run without the recorder.
//!
//! The tests need a QEMU with plugin support and a C compiler. Without them they print a message and pass.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

mod instrumented;

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use countersteer_model::profile::CaveatKind;
use countersteer_profiler::{ProgramEnding, profile};

use instrumented::{options, programs};

fn caveats(program: &str, arguments: &[&str]) -> Vec<(CaveatKind, String)> {
    let recording = profile(&options(program, arguments)).unwrap();
    assert_eq!(recording.ending, ProgramEnding::Exited(0), "{arguments:?}");
    let caveats = recording.profile.caveats.into_iter();
    caveats.map(|of| (of.kind, of.file)).collect()
}

/// Writes a 32-bit program that only calls exit(0).
fn program_of_32_bits(file: &Path) {
    const LOADED_AT: u32 = 0x0804_8000;
    let code = [0xb8, 1, 0, 0, 0, 0x31, 0xdb, 0xcd, 0x80];
    let mut bytes = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0\x01\0\0\0".to_vec();
    // Entry, program headers, and the sizes and counts of all headers.
    for word in [LOADED_AT + 84, 52, 0, 0] {
        bytes.extend(u32::to_le_bytes(word));
    }
    for half in [52u16, 32, 1, 0, 0, 0] {
        bytes.extend(half.to_le_bytes());
    }
    for word in [1, 0, LOADED_AT, LOADED_AT, 93, 93, 5, 4096] {
        bytes.extend(u32::to_le_bytes(word));
    }
    bytes.extend(code);
    std::fs::write(file, bytes).unwrap();
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn a_plain_program_has_none() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    assert_eq!(caveats(&program, &["fork"]), []);
    let missing = ["execute", "/nonexistent/program"];
    assert_eq!(caveats(&program, &missing), []);
}

#[test]
fn a_program_with_rights_of_its_own_is_named_where_it_is_executed_too() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    if !nix::unistd::geteuid().is_root() {
        countersteer_fuzz::skipped("needs root to give a program to another user");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let own = directory.path().join("own");
    std::fs::copy(&program, &own).unwrap();
    chown(&own, Some(4711), None).unwrap();
    std::fs::set_permissions(&own, PermissionsExt::from_mode(0o4755)).unwrap();
    let own = own.to_str().unwrap();
    let named = (CaveatKind::Rights, own.to_owned());
    assert_eq!(caveats(own, &["fork"]), std::slice::from_ref(&named));
    assert_eq!(caveats(&program, &["execute", own]), [named]);
}

#[test]
fn a_program_that_asks_for_features_is_named_on_processors_with_more() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let expected = cpuinfo
        .contains(" avx512f ")
        .then(|| (CaveatKind::Processor, program.clone()));
    let found = caveats(&program, &["features"]);
    assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
}

#[test]
fn refused_calls_are_named() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let found = caveats(&program, &["uring"]);
    assert_eq!(found, [(CaveatKind::IoUring, program)]);
}

#[test]
fn programs_that_run_unrecorded_are_named() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let small = directory.path().join("small");
    program_of_32_bits(&small);
    let here = Command::new(&small).status();
    let small = small.to_str().unwrap();
    let found = caveats(&program, &["execute", small]);
    if here.is_ok_and(|status| status.success()) {
        assert_eq!(found, [(CaveatKind::NotFollowed, small.to_owned())]);
    } else {
        assert_eq!(found, [], "it cannot run at all");
        countersteer_fuzz::skipped("this kernel runs no 32-bit programs");
    }
    let refused = profile(&options(small, &[])).unwrap_err();
    assert!(refused.to_string().contains("32-bit x86"), "{refused}");
}

#[test]
fn programs_that_close_all_descriptors_are_recorded() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let recording = profile(&options(&program, &["close"])).unwrap();
    assert_eq!(recording.ending, ProgramEnding::Exited(0));
    assert_eq!(recording.profile.shape.threads, 3);
    assert_eq!(recording.profile.caveats, []);
}
