//! Tests of signatures: exact counts, round trips of bytes, binaries that still run, and damaged input that must not panic.

#![allow(clippy::unwrap_used)] // a helper that fails has failed its test

use std::path::Path;
use std::process::Command;

use countersteer_cache::signature::{Carried, Maker, elf, note, store};
use countersteer_cache::tracer::ThreadTracer;
use countersteer_cache::wire::BlockHead;
use countersteer_fuzz::storm;

/// Sweeps over 64 KiB for three million instructions, then over 1 MiB for one.
fn carried() -> Carried {
    let mut maker = Maker::default();
    let mut tracer = ThreadTracer::new(1, 1, 8);
    let mut take = |tracer: &mut ThreadTracer| {
        tracer.hand_on(0, 0, |head: BlockHead, words| {
            maker.block(&head, words).unwrap()
        });
    };
    for n in 0..1_u64 << 20 {
        tracer.instructions(4);
        let line = if n < 3 << 18 {
            n % 1024
        } else {
            4096 + n % 16_384
        };
        tracer.data(line, line, false);
        if tracer.is_complete() {
            take(&mut tracer);
        }
    }
    take(&mut tracer);
    maker.finish("sweep", "test").unwrap()
}

#[test]
fn a_sweep_misses_where_it_does_not_fit() {
    let carried = carried();
    // An access every fourth instruction: 1,024 of 4,096.
    assert_eq!(carried.misses[0], [1024; 4], "16 KiB");
    // A quarter of the run sweeps over more than 64 KiB.
    assert!(
        carried.misses[3].iter().all(|m| (256..=260).contains(m)),
        "{:?}",
        carried.misses[3]
    );
    assert!(
        carried.misses[10].iter().all(|m| *m < 20),
        "{:?}",
        carried.misses[10]
    );
    let calm = carried.phases.iter().filter(|p| p.misses[3][2] < 100);
    let calm: f64 = calm.map(|p| p.share).sum();
    assert!((calm - 0.75).abs() < 0.1, "{calm}");
}

#[test]
fn bytes_and_text_come_back() {
    let carried = carried();
    let decoded = note::decode(&note::encode(&carried)).unwrap();
    assert_eq!(
        (decoded.misses, &decoded.name),
        (carried.misses, &carried.name)
    );
    assert_eq!(decoded.phases.len(), carried.phases.len());
    let text = serde_json::to_string(&carried).unwrap();
    assert_eq!(Carried::parse("x", &text).unwrap(), carried);
    let merged = Carried::merge("both", &[carried.clone(), carried.clone()]).unwrap();
    assert_eq!(merged.misses, carried.misses);
    assert_eq!(merged.phases.len(), carried.phases.len());
}

fn tool(command: &mut Command) -> Option<bool> {
    command.output().ok().map(|output| output.status.success())
}

#[test]
fn a_binary_keeps_its_signature_through_strip_and_cp_and_still_runs() {
    let directory = tempfile::tempdir().unwrap();
    let own = std::env::current_exe().unwrap();
    let bytes = std::fs::read(own).unwrap();
    let before = elf::parse(bytes.as_slice()).unwrap();
    assert_eq!(before.carried, None);
    let carried = carried();
    let once = elf::embed(&bytes, &carried).unwrap();
    let other = Carried {
        name: "other".into(),
        ..carried.clone()
    };
    let twice = elf::embed(&once, &other).unwrap();
    let after = elf::parse(twice.as_slice()).unwrap();
    assert_eq!(after.build_id, before.build_id);
    assert_eq!(after.carried.unwrap().name, "other");
    let path = directory.path().join("program");
    std::fs::write(&path, &once).unwrap();
    let runnable: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, runnable).unwrap();
    let runs = |path: &Path| tool(Command::new(path).arg("--list")) == Some(true);
    assert!(runs(&path));
    let copy = directory.path().join("copy");
    std::fs::copy(&path, &copy).unwrap();
    if tool(Command::new("strip").arg(&copy)) != Some(true) {
        println!("skipped: strip is missing");
        return;
    }
    assert!(runs(&copy) && std::fs::metadata(&copy).unwrap().len() < once.len() as u64);
    let (found, place) = store::of_binary(&copy).unwrap().unwrap();
    assert_eq!(
        (found.misses, place),
        (carried.misses, store::SignaturePlace::Inside)
    );
}

#[test]
fn what_cannot_be_done_is_an_error() {
    let carried = carried();
    assert!(
        elf::embed(b"#!/bin/sh\n", &carried)
            .unwrap_err()
            .contains("ELF")
    );
    let mut bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    bytes.extend(b"an archive that the program looks for at its end");
    assert!(
        elf::embed(&bytes, &carried)
            .unwrap_err()
            .contains("side file")
    );
    let mut damaged = note::encode(&carried);
    damaged[30] ^= 1;
    assert!(note::decode(&damaged).unwrap_err().contains("checksum"));
}

/// Smallest binary with a section: an ELF header, names, two section headers.
fn small_elf() -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
    bytes[16] = 2;
    bytes[18] = 62;
    bytes[20] = 1;
    bytes[40] = 80;
    bytes[52] = 64;
    bytes[54] = 56;
    bytes[58] = 64;
    bytes[60] = 2;
    bytes[62] = 1;
    bytes.extend(b"\0.shstrtab\0\0\0\0\0\0");
    bytes.extend([0; 64]);
    let mut names = [0; 64];
    names[0] = 1;
    names[4] = 3;
    names[24] = 64;
    names[32] = 11;
    bytes.extend(names);
    bytes
}

#[test]
fn no_signature_or_binary_makes_a_reader_fall() {
    let carried = carried();
    storm("signature note", &[&note::encode(&carried)], 1.0, |input| {
        drop(note::decode(input))
    });
    let text = serde_json::to_string(&carried).unwrap();
    storm("signature file", &[text.as_bytes()], 0.3, |input| {
        drop(Carried::parse("x", &String::from_utf8_lossy(input)));
    });
    let plain = small_elf();
    let with = elf::embed(&plain, &carried).unwrap();
    assert_eq!(
        elf::parse(with.as_slice()).unwrap().carried.unwrap().misses,
        carried.misses
    );
    storm("ELF", &[&plain, &with], 1.0, |input| {
        drop(elf::parse(input));
        drop(elf::embed(input, &carried));
    });
}
