//! Tests of a thread's counts with programs whose counts are known.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::JoinHandle;

use countersteer_cache::wire::{Decoder, WireKind};
use countersteer_model::profile::LogHistogram;

use super::*;
use crate::block::{MemoryUse, READ_SHIFT, SIZE_SHIFT, WRITE_SHIFT};
use crate::layout::STACK_BUCKETS;
use crate::stream::testing::{Sent, received};

const LOAD_8: u32 = 3 << SIZE_SHIFT | 1 << READ_SHIFT;

fn vcpu(name: &str) -> (Vcpu, PathBuf) {
    measured(name, Measure::Reference)
}

fn measured(name: &str, measure: Measure) -> (Vcpu, PathBuf) {
    let directory = std::env::temp_dir().join(format!("steer-vcpu-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let control: &'static WindowControl =
        Box::leak(Box::new(WindowControl::create_for_test(&directory)));
    (Vcpu::new(&directory, control, measure).unwrap(), directory)
}

fn block(count: u32) -> &'static TranslatedBlock {
    Box::leak(Box::new(TranslatedBlock {
        pc: 0x1000,
        count,
        insns: vec![Default::default(); count as usize].into(),
        ..TranslatedBlock::default()
    }))
}

#[test]
fn counts_of_a_sweep_are_exact() {
    let (mut vcpu, directory) = vcpu("sweep");
    let block = block(4);
    for i in 0..40_000u64 {
        assert_eq!(vcpu.block(block), CallerAction::Go);
        vcpu.memory::<false>(
            LOAD_8,
            0x10_0000 + i % 8000 * 8,
            MemoryUse {
                index: 1,
                bytes: 8,
                split: false,
                repeat: false,
            }
            .pack(),
        );
    }
    assert_eq!(vcpu.enter_call(), CallerAction::Go);
    let record = *vcpu.file.record();
    assert_eq!(record[record::INSTRUCTIONS], 160_000);
    assert_eq!(record[record::LOADS], 40_000);
    assert_eq!(record[record::COLD], 1000);
    assert_eq!(record[record::STACK + LogHistogram::bucket(999)], 4000);
    assert_eq!(record[record::NEAR], 35_000);
    assert_eq!(record[record::NEAR_STACK], 35_000);
    assert_eq!(record[record::REUSE + LogHistogram::bucket(7993)], 4000);
    assert!(record[record::SAMPLED] > 0);
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn parts_of_one_access_count_once_and_touch_every_line() {
    let datum = |bytes| {
        let usage = MemoryUse {
            index: 0,
            bytes,
            split: true,
            repeat: false,
        };
        usage.pack()
    };
    // QEMU moves 8 or 16 bytes at a time.
    for (name, size_log2) in [("parts8", 3), ("parts16", 4)] {
        let (mut vcpu, directory) = vcpu(name);
        let info = size_log2 << SIZE_SHIFT | 1 << READ_SHIFT;
        for address in (0x1030..0x1070).step_by(1 << size_log2) {
            vcpu.split_memory::<false>(info, address, datum(32));
        }
        let _ = vcpu.settle();
        assert_eq!(vcpu.file.record()[record::LOADS], 2, "{name}");
        assert_eq!(vcpu.file.record()[record::COLD], 2, "{name}");
        // An unsplit access has no further parts, wherever the next access begins.
        for address in [0x1000, 0x1008] {
            vcpu.split_memory::<false>(4 << SIZE_SHIFT | 1 << READ_SHIFT, address, datum(16));
        }
        let _ = vcpu.settle();
        assert_eq!(vcpu.file.record()[record::LOADS], 4, "{name}");
        std::fs::remove_dir_all(directory).unwrap();
    }
}

#[test]
fn a_repeated_string_instruction_is_one() {
    let (mut vcpu, directory) = vcpu("repeat");
    let insns = vec![Default::default()].into();
    let block = TranslatedBlock {
        pc: 0x1000,
        count: 1,
        starts_repeat: true,
        ends_repeat: 0x1000,
        insns,
        ..TranslatedBlock::default()
    };
    let block: &'static TranslatedBlock = Box::leak(Box::new(block));
    for i in 0..256 {
        let _ = vcpu.block(block);
        vcpu.split_memory::<false>(
            1 << WRITE_SHIFT,
            0x2000 + i,
            MemoryUse {
                index: 0,
                bytes: 8,
                split: false,
                repeat: true,
            }
            .pack(),
        );
    }
    let _ = vcpu.settle();
    assert_eq!(vcpu.file.record()[record::INSTRUCTIONS], 1);
    assert_eq!(vcpu.file.record()[record::STORES], 4);
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn the_limit_stops_at_the_block_that_reaches_it() {
    let (mut vcpu, directory) = vcpu("limit");
    vcpu.control.set_limit_for_test(10_001);
    vcpu.schedule();
    let block = block(10);
    let blocks = (1..)
        .take_while(|_| vcpu.block(block) == CallerAction::Go)
        .count();
    assert_eq!(blocks, 1000);
    std::fs::remove_dir_all(directory).unwrap();
}

/// Runs a thread through `count` blocks that each load a line of a cycle of `lines` lines.
fn cycle(name: &str, measure: Measure, count: u64, lines: u64) -> [u64; record::WORDS] {
    let (mut vcpu, directory) = measured(name, measure);
    let block = block(16);
    let datum = MemoryUse {
        index: 1,
        bytes: 8,
        split: false,
        repeat: false,
    };
    for i in 0..count {
        let common = measure == Measure::Sampled && vcpu.common_block(block);
        if !common {
            let verdict = match measure {
                Measure::Sampled => vcpu.special_block(block),
                _ => vcpu.block(block),
            };
            assert_eq!(verdict, CallerAction::Go);
        }
        vcpu.memory::<false>(LOAD_8, 0x10_0000 + i % lines * 64, datum.pack());
    }
    let _ = vcpu.settle();
    let mut sum = [0; record::WORDS];
    let head = crate::layout::PAGE / 8;
    let bytes = std::fs::read(directory.join("000001.raw")).unwrap();
    let words: Vec<u64> = bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_ne_bytes(*word))
        .collect();
    for window in words[head..].chunks_exact(record::WORDS) {
        crate::layout::add_record(&mut sum, window);
    }
    std::fs::remove_dir_all(directory).unwrap();
    sum
}

#[test]
fn a_sample_of_lines_counts_the_far_touches_of_all() {
    let count = 2_000_000;
    let exact = cycle("whole", Measure::Exact, count, 4000);
    let sample = cycle("sample", Measure::Sampled, count, 4000);
    for word in [record::INSTRUCTIONS, record::LOADS, record::COLD] {
        assert_eq!(sample[word], exact[word]);
    }
    let far = |of: &[u64], from: u64| -> f64 {
        let buckets = record::STACK + LogHistogram::bucket(from)..record::STACK + STACK_BUCKETS;
        of[buckets].iter().sum::<u64>() as f64
    };
    assert!((far(&sample, 2048) / far(&exact, 2048) - 1.0).abs() < 0.01);
    assert_eq!(far(&sample, 4608), 0.0);
    let [modelled, conflicts] = [record::MODELLED, record::CONFLICTS + 15]
        .map(|word| [&exact, &sample].map(|of| of[word] as f64));
    // Each load misses in 64 sets of 16 ways.
    for (missed, modelled) in conflicts.iter().zip(modelled) {
        assert!(
            (16.0 * missed / modelled - 1.0).abs() < 0.02,
            "{missed} {modelled}"
        );
    }
    assert!(sample[record::WINDOWS] >= 8 && sample[record::PREDICTED] < exact[record::PREDICTED]);
}

/// Returns a thread and the receiver of its stream, which returns heads and words of all blocks at the end.
fn streamed(name: &str) -> (Vcpu, PathBuf, JoinHandle<Vec<Sent>>) {
    let (mut vcpu, directory) = vcpu(name);
    let listener = UnixListener::bind(directory.join(crate::layout::STREAM_SOCKET)).unwrap();
    let receiver = std::thread::spawn(move || received(listener.accept().unwrap().0));
    vcpu.connect(&directory, 8).unwrap();
    (vcpu, directory, receiver)
}

/// Returns the instruction of each misprediction in the sent events, counted from the thread's start.
fn mispredictions(blocks: &[Sent]) -> Vec<u64> {
    let (mut begun, mut found) = (0, Vec::new());
    for (head, words) in blocks {
        let mut decoder = Decoder::new(words);
        let mut at = begun;
        while let Some(event) = decoder.next_event().unwrap() {
            at += u64::from(event.gap);
            found.extend((event.what == WireKind::Mispredicted).then_some(at));
        }
        begun += u64::from(head.instructions);
    }
    found
}

#[test]
fn mispredictions_that_end_a_slice_are_sent_as_well() {
    let (mut vcpu, directory, receiver) = streamed("streamed");
    let call: &'static TranslatedBlock = Box::leak(Box::new(TranslatedBlock {
        pc: 0x1000,
        count: 7,
        end: crate::block::BlockEnd::Return,
        insns: vec![Default::default(); 7].into(),
        ..TranslatedBlock::default()
    }));
    // Each block returns without a matching call.
    let blocks = 100_000;
    for _ in 0..blocks {
        assert_eq!(vcpu.streamed_block(call), CallerAction::Go);
    }
    let _ = vcpu.settle();
    let counted = vcpu.file.record()[record::MISPREDICTED];
    vcpu.send_last(true);
    vcpu.stream = None;
    let expected: Vec<u64> = (1..blocks).map(|n| n * 7).collect();
    assert_eq!(mispredictions(&receiver.join().unwrap()), expected);
    assert_eq!(counted, blocks - 1);
    std::fs::remove_dir_all(directory).unwrap();
}

/// Returns the instructions sent by a thread that executes 700 and then reaches the end of the recording through `ends`.
fn sent_at_the_end(name: &str, ends: fn(&mut Vcpu) -> CallerAction) -> u64 {
    let (mut vcpu, directory, receiver) = streamed(name);
    let block = block(7);
    for _ in 0..100 {
        assert_eq!(vcpu.streamed_block(block), CallerAction::Go);
    }
    assert_eq!(ends(&mut vcpu), CallerAction::Stop);
    vcpu.stream = None;
    std::fs::remove_dir_all(directory).unwrap();
    let heads = receiver.join().unwrap();
    heads.iter().map(|of| u64::from(of.0.instructions)).sum()
}

#[test]
fn threads_that_meet_the_end_at_a_system_call_send_all_they_executed() {
    let at_entry = |vcpu: &mut Vcpu| {
        vcpu.control.stop();
        vcpu.enter_call()
    };
    let at_return = |vcpu: &mut Vcpu| {
        assert_eq!(vcpu.enter_call(), CallerAction::Go);
        vcpu.control.stop();
        vcpu.leave_call()
    };
    assert_eq!(sent_at_the_end("entry", at_entry), 700);
    assert_eq!(sent_at_the_end("return", at_return), 700);
}

#[test]
fn a_forked_thread_without_a_file_has_nothing_to_write_to() {
    let (mut vcpu, directory, receiver) = streamed("forked");
    assert!(vcpu.fork(&directory.join("missing")).is_err());
    assert!(vcpu.stream.is_none());
    assert!(receiver.join().unwrap().is_empty());
    std::fs::remove_dir_all(directory).unwrap();
}
