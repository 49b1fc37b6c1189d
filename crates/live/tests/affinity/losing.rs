//! Tests that threads whose fork reports were lost for lack of room are found in /proc.

use std::io;
use std::time::Instant;

use countersteer_counters::{
    BpfLoader, BpfRequest, Follow, SetOfClass, TakeReport, sees_all_threads,
};

use super::*;

/// Follower that reports no thread; after a while it reports a loss.
struct Forgetful(Instant);

const REMEMBERS_MS: u128 = 200;

impl Follow for Forgetful {
    fn kinds(&self) -> Vec<SetOfClass> {
        Vec::new()
    }

    fn adopt(&mut self, _: &[(u32, u32)]) -> io::Result<()> {
        Ok(())
    }

    fn switch(&mut self, _: u32, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn collect(&mut self, _: TakeReport<'_>) {}

    fn living(&mut self) -> Vec<(u32, u32)> {
        Vec::new()
    }

    fn rest(&mut self) -> Vec<(usize, Vec<u64>)> {
        Vec::new()
    }

    fn lost(&self) -> u64 {
        u64::from(self.0.elapsed().as_millis() > REMEMBERS_MS)
    }

    fn is_crowded(&self) -> bool {
        false
    }
}

fn load(_: &BpfRequest<'_>) -> Result<Box<dyn Follow>, String> {
    Ok(Box::new(Forgetful(Instant::now())))
}

#[test]
fn threads_whose_forks_were_lost_are_found_and_seen_to_end() {
    if !sees_all_threads(Path::new("/")) {
        countersteer_fuzz::skipped("threads have other numbers in the kernel than here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    let program = Program::start(&format!("(sleep 0.1; {}) & wait; {SPIN}", wait_for(&gate)));
    let journals = folder.path().join("journals");
    let affinity = AffinityConfig {
        bpf: Some(BpfLoader {
            load: std::sync::Arc::new(load),
            must: true,
        }),
        ..config(Some(counters(&["task_clock"], PERIOD)))
    };
    let mut engine = engine_of(affinity, &journals, None);
    engine.attach(&root(&program)).unwrap();
    let mut forked = Vec::new();
    let mut ended = Vec::new();
    let mut take = |seen: &countersteer_model::engine::Observation| {
        for event in &seen.events {
            match event.kind {
                ThreadEventKind::New if event.thread.0 != program.pid() => {
                    forked.push(event.thread)
                }
                ThreadEventKind::Exit => ended.push(event.thread),
                _ => {}
            }
        }
        (forked.len(), ended.len())
    };
    until(&mut engine, |seen| take(seen).0 > 0);
    std::fs::write(&gate, "").unwrap();
    // The shell that waited for the gate, and its children meanwhile.
    until(&mut engine, |seen| {
        let (forked, ended) = take(seen);
        seen.threads.len() == 1 && forked == ended
    });
}
