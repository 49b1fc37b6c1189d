//! Tests of pages with threads, children and engines.

use std::os::unix::fs::FileExt;
use std::sync::{Arc, Barrier};

use super::layout::{self, HEAD, LENGTH, SLOT};
use super::*;

/// File of this process that an engine finds.
fn found() -> std::fs::File {
    let paths =
        (layout::FIRST..layout::FIRST + layout::TRIES).map(|n| format!("/proc/self/fd/{n}"));
    let path = paths
        .into_iter()
        .find(|p| std::fs::read_link(p).is_ok_and(|l| l.to_string_lossy().contains(layout::NAME)));
    std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path.unwrap())
        .unwrap()
}

/// Row of a page.
fn row(page: HintPage) -> usize {
    let mut all = vec![0; LENGTH];
    found().read_exact_at(&mut all, 0).unwrap();
    let started = PROC.own_stat().unwrap().started;
    let own = (tid(), started);
    assert_eq!(page.0.program.tid.load(Ordering::Relaxed), tid());
    all[HEAD..]
        .chunks_exact(SLOT)
        .position(|slot| layout::owner_of(slot) == own)
        .unwrap()
}

fn tid() -> u32 {
    nix::unistd::gettid().as_raw() as u32
}

#[test]
fn hints_are_found_and_advice_is_read() {
    let page = HintPage::open().unwrap();
    assert_eq!(
        page.into_raw(),
        HintPage::open().unwrap().into_raw(),
        "a thread has one page"
    );
    let hint = Hint {
        priority: -3,
        qos_permille: 250,
        phase: Phase::Blocked,
        workers: 7,
    };
    page.tell(&hint);
    let at = HEAD + row(page) * SLOT;
    let mut slot = [0; SLOT];
    found().read_exact_at(&mut slot, at as u64).unwrap();
    assert_eq!(
        (
            layout::hint_of(&slot),
            layout::word(&slot, layout::HINT_SEQ) % 2
        ),
        (hint, 0)
    );
    page.phase(Phase::Spinning);
    found().read_exact_at(&mut slot, at as u64).unwrap();
    assert_eq!(
        layout::hint_of(&slot),
        Hint {
            phase: Phase::Spinning,
            ..hint
        }
    );
    assert_eq!(page.read(), None);

    let before = page.epoch();
    let name = HintAdvice::name_of("big");
    let mut advice = HintAdvice {
        epoch: before + 2,
        rank: 1,
        core_types: 3,
        sf: Some(1.5),
        speed: 1.25,
        share: 0.5,
        name,
    };
    let said = (at + layout::SAID_SEQ) as u64;
    found()
        .write_all_at(&(before + 1).to_ne_bytes(), said)
        .unwrap();
    found()
        .write_all_at(&layout::bytes_of(Some(&advice)), said + 4)
        .unwrap();
    assert_eq!(page.read(), None, "half written");
    found()
        .write_all_at(&(before + 2).to_ne_bytes(), said)
        .unwrap();
    assert_eq!((page.read(), page.epoch()), (Some(advice), before + 2));
    assert_eq!(page.read().unwrap().core_type(), "big");
    advice.sf = None;
    found()
        .write_all_at(&layout::bytes_of(Some(&advice)), said + 4)
        .unwrap();
    assert_eq!(page.read().unwrap().sf, None, "unknown is no number");
    page.close();
    assert_eq!(
        HintPage::open().unwrap().read(),
        None,
        "the advice to the page's former thread is cleared"
    );
}

#[test]
fn the_file_cannot_change_its_size() {
    let _page = HintPage::open().unwrap();
    assert!(found().set_len(0).is_err() && found().set_len(2 * LENGTH as u64).is_err());
}

#[test]
fn a_thousand_threads_have_a_page_each_and_give_it_back() {
    const THREADS: usize = 1000;
    let barrier = Arc::new(Barrier::new(THREADS));
    let one = || {
        let barrier = Arc::clone(&barrier);
        let run = move || {
            let page = HintPage::open().unwrap().into_raw() as usize;
            barrier.wait();
            page
        };
        std::thread::Builder::new()
            .stack_size(1 << 16)
            .spawn(run)
            .unwrap()
    };
    let threads: Vec<_> = (0..THREADS).map(|_| one()).collect();
    let pages: std::collections::BTreeSet<usize> =
        threads.into_iter().map(|t| t.join().unwrap()).collect();
    assert_eq!(pages.len(), THREADS);
    let again = std::thread::spawn(|| HintPage::open().unwrap().into_raw() as usize)
        .join()
        .unwrap();
    // The first free page is taken: one of these, or an earlier one that a thread of another test has closed.
    assert!(
        again <= *pages.last().unwrap(),
        "pages of threads that have ended are free"
    );
}

#[test]
fn a_forked_child_leaves_its_parents_page_alone_and_has_its_own() {
    let page = HintPage::open().unwrap();
    page.tell(&Hint {
        workers: 5,
        ..Hint::default()
    });
    // SAFETY: the child only uses pages, reads files and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: plain system call; the child ends in any case.
        unsafe { libc::alarm(60) };
        let silent = page.0.program.tid.load(Ordering::Relaxed) == 0 && page.read().is_none();
        page.tell(&Hint {
            workers: 9,
            ..Hint::default()
        });
        let inherited = (layout::FIRST..layout::FIRST + layout::TRIES)
            .any(|n| std::fs::read_link(format!("/proc/self/fd/{n}")).is_ok());
        let own = HintPage::open().is_ok_and(|own| own.into_raw() != page.into_raw());
        // SAFETY: ends the child without the exit handlers of the test harness.
        unsafe { libc::_exit(if silent && !inherited && own { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above; `status` is a place for its status.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    assert_eq!(page.0.program.workers.load(Ordering::Relaxed), 5);
}

/// Variable set in a child of the test.
const FIRST_PAGES: &str = "COUNTERSTEER_TEST_FIRST_PAGES";

/// In a child, in which no page is open yet, all threads open the first one at once. The child executes this test again. A
/// child that was only forked could not start threads if another test's thread held a lock of the standard library.
#[test]
fn threads_that_open_the_first_page_at_once_share_one_file() {
    const THREADS: usize = 32;
    if std::env::var_os(FIRST_PAGES).is_none() {
        let name = "hint_page::tests::threads_that_open_the_first_page_at_once_share_one_file";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(FIRST_PAGES, "1")
            .output()
            .unwrap();
        let shown = String::from_utf8_lossy(&child.stdout);
        assert!(
            child.status.success() && shown.contains("1 passed"),
            "{shown}"
        );
        return;
    }
    let barrier = Arc::new(Barrier::new(THREADS));
    let one = |_| {
        let barrier = Arc::clone(&barrier);
        std::thread::spawn(move || {
            barrier.wait();
            HintPage::open().unwrap();
            barrier.wait();
        })
    };
    let threads: Vec<_> = (0..THREADS).map(one).collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    let pages = links.filter(|link| link.to_string_lossy().contains(layout::NAME));
    assert_eq!(pages.count(), 1);
}

#[test]
fn no_bytes_of_a_program_make_an_engine_fall() {
    let mut sound = vec![0; HEAD + 2 * SLOT];
    found_bytes(&mut sound);
    countersteer_fuzz::storm("hint page", &[&sound], 1.0, |input| {
        let slots = layout::used_of(input, std::process::id()).unwrap_or(layout::SLOTS);
        let rest = input.get(HEAD..).unwrap_or_default();
        for slot in rest.chunks(SLOT).take(slots) {
            let hint = layout::hint_of(slot);
            assert!((-10..=10).contains(&hint.priority), "{hint:?}");
            let _ = (layout::owner_of(slot), layout::work_of(slot));
        }
    });
}

/// First bytes of this process's own page file.
fn found_bytes(bytes: &mut [u8]) {
    let _page = HintPage::open().unwrap();
    found().read_exact_at(bytes, 0).unwrap();
}
