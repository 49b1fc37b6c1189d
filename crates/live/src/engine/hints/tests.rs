//! Tests of an engine with valid and with invalid pages.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use countersteer_model::engine::{ThreadEvent, ThreadEventKind};
use countersteer_model::hint::Phase;
use countersteer_model::machine::Machine;
use countersteer_model::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_model::sample::Sample;
use countersteer_model::topology::GroupBy;
use countersteer_model::units::{CoreTypeId, CpuId, ProgramId};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::*;
use crate::hint_page::HintPage;
use crate::hint_page::layout::{FIRST, HEAD, HINT_SEQ, LENGTH, MAGIC, SLOT, SLOTS, VERSION};

const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_SEAL);

/// File as a program might make it without this library.
fn file(length: u64, seals: Option<SealFlag>, head: impl FnOnce(&mut [u8; 28])) -> File {
    let file: File = memfd_create("x", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)
        .unwrap()
        .into();
    file.set_len(length).unwrap();
    let mut bytes = [0; 28];
    bytes[..8].copy_from_slice(&MAGIC.to_ne_bytes());
    for (row, word) in [VERSION, SLOT as u32, SLOTS as u32, std::process::id(), 1]
        .into_iter()
        .enumerate()
    {
        bytes[8 + 4 * row..12 + 4 * row].copy_from_slice(&word.to_ne_bytes());
    }
    head(&mut bytes);
    file.write_all_at(&bytes, 0).unwrap();
    if let Some(seals) = seals {
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
    }
    file
}

fn honest() -> File {
    file(LENGTH as u64, Some(SEALS), |_| {})
}

fn opened(file: &File, owner: u32) -> Option<ProgramPages> {
    ProgramPages::open(
        std::process::id(),
        owner,
        format!("/proc/self/fd/{}", file.as_raw_fd()).into(),
    )
}

fn own_user() -> u32 {
    std::fs::metadata("/proc/self").unwrap().uid()
}

#[test]
fn only_a_sealed_file_without_a_name_of_the_programs_own_user_is_opened() {
    let user = own_user();
    assert!(opened(&honest(), user).is_some());
    assert!(opened(&honest(), user + 1).is_none(), "another user's");
    let length = LENGTH as u64;
    assert!(
        opened(&file(length, None, |_| {}), user).is_none(),
        "its size may change"
    );
    assert!(opened(&file(length, Some(SealFlag::F_SEAL_GROW), |_| {}), user).is_none());
    assert!(
        opened(
            &file(length, Some(SEALS | SealFlag::F_SEAL_WRITE), |_| {}),
            user
        )
        .is_none(),
        "nothing can be said"
    );
    assert!(
        opened(&file(length - 1, Some(SEALS), |_| {}), user).is_none(),
        "too short"
    );
    for wrong in [0, 8, 12, 16, 20] {
        assert!(
            opened(&file(length, Some(SEALS), |head| head[wrong] ^= 1), user).is_none(),
            "byte {wrong}"
        );
    }
    let named = tempfile::NamedTempFile::new().unwrap();
    named.as_file().set_len(length).unwrap();
    assert!(
        opened(named.as_file(), user).is_none(),
        "a file that has a name"
    );
    let unnamed = tempfile::tempfile().unwrap();
    unnamed.set_len(length).unwrap();
    assert!(opened(&unnamed, user).is_none(), "a file on a disk");
    assert!(
        ProgramPages::open(std::process::id(), user, "/dev/null".into()).is_none(),
        "a device"
    );
}

#[test]
fn more_slots_than_there_are_and_nonsense_in_them_do_no_harm() {
    let file = file(LENGTH as u64, Some(SEALS), |head| head[24..28].fill(0xff));
    for at in (HEAD..LENGTH).step_by(SLOT) {
        file.write_all_at(&[0xee; SLOT], at as u64).unwrap();
    }
    let mut shared = opened(&file, own_user()).unwrap();
    assert!(shared.read());
    assert_eq!(shared.owners().count(), SLOTS);
    let wild = Hint {
        priority: -10,
        qos_permille: 1000,
        phase: Phase::Running,
        workers: 0xeeee_eeee,
    };
    assert_eq!(shared.hint(0), Some(wild));
    assert_eq!(shared.hint(SLOTS), None, "behind the end");
    assert!(
        !shared.say(SLOTS, None),
        "nothing can be written there either"
    );
}

#[test]
fn a_hint_that_is_being_written_is_not_read() {
    let file = honest();
    let mut shared = opened(&file, own_user()).unwrap();
    let seq = (HEAD + HINT_SEQ) as u64;
    file.write_all_at(&3u32.to_ne_bytes(), seq).unwrap();
    assert!(shared.read() && shared.hint(0).is_none());
    file.write_all_at(&4u32.to_ne_bytes(), seq).unwrap();
    assert_eq!(shared.hint(0), None, "until it is read again");
    assert!(shared.read() && shared.hint(0).is_some());
}

#[test]
fn of_two_engines_one_speaks() {
    let file = honest();
    let mut first = opened(&file, own_user()).unwrap();
    let mut second = opened(&file, own_user()).unwrap();
    assert!(first.say(0, None) && !second.say(0, None) && first.say(0, None));
    drop(first);
    assert!(second.say(0, None));
}

/// Half of the words of a thread are always equal to the other half; no mixture is ever read.
#[test]
fn no_mixture_is_heard_while_a_thread_tells_all_the_time() {
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (send, receive) = std::sync::mpsc::channel();
    let talker = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let page = HintPage::open().unwrap();
            send.send(nix::unistd::gettid().as_raw() as u32).unwrap();
            let mut n = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                n = (n + 1) % 1000;
                page.tell(&Hint {
                    qos_permille: n,
                    workers: n.into(),
                    ..Hint::default()
                });
            }
        }
    });
    let pid = std::process::id();
    let owner = PROC.identity(receive.recv().unwrap()).unwrap();
    let mut shared = ProgramPages::find(pid, false).unwrap();
    let mut heard = 0;
    for _ in 0..2000 {
        assert!(shared.read());
        let row = shared.owners().find(|(of, _)| *of == owner).unwrap().1;
        if let Some(hint) = shared.hint(row) {
            assert_eq!(u32::from(hint.qos_permille), hint.workers);
            heard += 1;
        }
    }
    eprintln!("{heard} of 2000 readings were whole");
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    talker.join().unwrap();
}

fn topology() -> Arc<Topology> {
    let text = include_str!("../../../../../vm/unequal.toml");
    Arc::new(Topology::new(
        &Machine::parse("unequal.toml", text).unwrap(),
    ))
}

fn info(topology: &Topology, tid: u32, cpu: u32) -> ThreadInfo {
    ThreadInfo {
        id: ThreadId(tid),
        program: ProgramId(0),
        name: "p".into(),
        cpu: CpuId(cpu),
        runnable: true,
        nice: 0,
        allowed: Arc::clone(&topology.groups[0].cpus),
        hint: None,
    }
}

fn to(topology: &Topology, tid: u32, rank: usize) -> ThreadPlacement {
    let target = Target::Group(topology.groups_by(GroupBy::CoreType)[rank].id);
    ThreadPlacement::new(ThreadId(tid), target, Reason::default())
}

#[test]
fn hints_of_a_thread_are_read_and_its_page_says_where_it_goes_until_the_engine_ends() {
    let run = || {
        let topology = topology();
        let pid = std::process::id();
        let tid = nix::unistd::gettid().as_raw() as u32;
        let page = HintPage::open().unwrap();
        let hint = Hint {
            priority: 3,
            workers: 4,
            phase: Phase::Spinning,
            ..Hint::default()
        };
        page.tell(&hint);
        let mut pages = HintPages::new(&topology);
        let observe = |pages: &mut HintPages| {
            let mut seen = Observation {
                threads: vec![info(&topology, tid, 0)],
                ..Observation::default()
            };
            seen.events = vec![ThreadEvent {
                at: seen.at,
                thread: ThreadId(tid),
                kind: ThreadEventKind::Wake,
            }];
            pages.hear(&mut seen, |_| Some(pid));
            seen.threads[0].hint
        };
        assert_eq!(observe(&mut pages), Some(hint));
        pages.say(&Placement {
            threads: vec![to(&topology, tid, 1)],
            ..Placement::default()
        });
        let advice = page.read().unwrap();
        assert_eq!(
            (advice.core_type(), advice.rank, advice.core_types),
            ("small", 1, 2)
        );
        assert_eq!((advice.sf, advice.speed, advice.share), (None, 1.0, 1.0));
        pages.say(&Placement {
            threads: vec![to(&topology, tid, 1)],
            ..Placement::default()
        });
        assert_eq!(page.epoch(), advice.epoch, "nothing new");
        pages.say(&Placement {
            threads: vec![to(&topology, tid, 0)],
            ..Placement::default()
        });
        let advice = page.read().unwrap();
        assert_eq!(
            (advice.core_type(), advice.rank, advice.speed),
            ("big", 0, 2.56)
        );
        page.close();
        assert_eq!(observe(&mut pages), None, "taken back");
        let page = HintPage::open().unwrap();
        assert_eq!(observe(&mut pages), Some(Hint::default()));
        pages.say(&Placement::default());
        assert!(page.read().is_some());
        drop(pages);
        assert!(page.read().is_none(), "its engine has ended");
    };
    // The thread is new, and so is its page.
    std::thread::spawn(run).join().unwrap();
}

/// The second search, 200 ms after the first, finds pages whose usual descriptor was taken.
#[test]
fn pages_elsewhere_are_found_at_a_later_look() {
    use std::os::unix::process::CommandExt;

    let file = honest();
    let from = file.as_raw_fd();
    let to = FIRST + 1;
    let mut program = std::process::Command::new("sleep");
    program.arg("60");
    // SAFETY: one system call on numbers.
    unsafe {
        program.pre_exec(move || {
            if libc::dup2(from, to) < 0 {
                Err(std::io::Error::last_os_error())
            } else {
                Ok(())
            }
        });
    }
    let mut program = program.spawn().unwrap();
    let pid = program.id();
    let topology = topology();
    file.write_all_at(&pid.to_ne_bytes(), 20).unwrap();
    let mut pages = HintPages::new(&topology);
    let mut look = |ms| {
        let threads = vec![info(&topology, pid, 0)];
        let mut seen = Observation {
            at: Nanos::from_millis(ms),
            threads,
            ..Observation::default()
        };
        pages.hear(&mut seen, |_| Some(pid));
        pages.there
    };
    assert_eq!(
        [1000, 1100, 1199, 1200].map(&mut look),
        [false, false, false, true]
    );
    program.kill().unwrap();
    program.wait().unwrap();
    assert!(!look(1300));
}

/// Work is counted from the first search on, shared by time among core types, kept for the next sample, and never decreases.
#[test]
fn work_done_since_the_last_sample_is_in_the_next() {
    let run = || {
        let topology = topology();
        let pid = std::process::id();
        let tid = nix::unistd::gettid().as_raw() as u32;
        let page = HintPage::open().unwrap();
        let mut pages = HintPages::new(&topology);
        let mut at = 0;
        // Milliseconds that it ran on big and on small cores since the last observation.
        let mut observe = |ran: &[(u32, u64)]| {
            at += 100;
            let at = Nanos::from_millis(at);
            let sample = |&(core_type, ms): &(u32, u64)| {
                let cpu = CpuId(2 * core_type);
                let ran = Nanos::from_millis(ms);
                let head = Sample::of_thread(ThreadId(tid), cpu, CoreTypeId(core_type), at, ran);
                let running = Nanos::ZERO;
                Samples::of(Sample { running, ..head }, 1, &[])
            };
            let threads = vec![info(&topology, tid, 0)];
            let samples = ran.iter().map(sample).collect();
            let mut seen = Observation {
                at,
                threads,
                samples,
                ..Observation::default()
            };
            pages.hear(&mut seen, |_| Some(pid));
            seen.samples
                .iter()
                .map(|s| s.counts.get(Event::Work))
                .collect::<Vec<_>>()
        };
        assert_eq!(observe(&[(0, 100)]), [None], "no hint yet");
        page.work(7);
        assert_eq!(observe(&[(0, 100)]), [Some(7.0)]);
        page.work(u64::MAX - 9);
        page.work(12);
        assert_eq!(
            observe(&[(0, 50), (1, 50)]),
            [Some(1.0), Some(1.0)],
            "it wraps around"
        );
        page.work(4);
        assert!(observe(&[]).is_empty());
        page.work(5);
        assert_eq!(observe(&[(1, 10)]), [Some(9.0)]);
        page.close();
        assert_eq!(observe(&[(1, 10)]), [None]);
        HintPage::open().unwrap().work(1000);
        assert_eq!(
            observe(&[(1, 10)]),
            [None],
            "who had the slot before is not meant"
        );
        assert_eq!(observe(&[(1, 10)]), [Some(0.0)]);
    };
    std::thread::spawn(run).join().unwrap();
}

#[test]
fn shares_and_speeds_follow_from_who_is_where() {
    let topology = topology();
    let types = topology.groups_by(GroupBy::CoreType);
    let big = Arc::clone(&types[0].cpus);
    let small = Arc::clone(&types[1].cpus);
    let infos: Vec<ThreadInfo> = (0..4).map(|tid| info(&topology, tid, 0)).collect();
    let seen = |row: usize, cpus, demand| AdvisedThread {
        info: &infos[row],
        cpus,
        demand,
        sf: Some(2.0),
    };
    let threads = [
        seen(0, &*big, 1.0),
        seen(1, &*big, 1.0),
        seen(2, &*big, 1.0),
        seen(3, &*small, 0.5),
    ];
    let outlook = LoadOutlook::new(&topology, &threads);
    let of = threads.each_ref().map(|thread| outlook.of(thread));
    assert!(
        of[..3].iter().all(|a| (a.share - 2.0 / 3.0).abs() < 1e-9),
        "three on two CPUs"
    );
    assert!((of[3].share - 1.0).abs() < 1e-9 && (of[3].speed - 1.0).abs() < 1e-9);
    assert!(
        (of[0].speed - 2.0).abs() < 1e-9,
        "by its own factor where one is known"
    );
    let near = HintAdvice {
        share: of[0].share * 1.01,
        ..of[0]
    };
    assert!(is_near(&of[0], &near) && !is_near(&of[0], &HintAdvice { rank: 1, ..of[0] }));
    assert!(!is_near(&of[0], &HintAdvice { sf: None, ..of[0] }));
}

/// Processes without pages, ended processes and those of another user give no hints, and nothing fails.
#[test]
fn who_has_no_page_tells_nothing() {
    let topology = topology();
    let mut pages = HintPages::new(&topology);
    let mut seen = Observation {
        threads: vec![info(&topology, 1, 0), info(&topology, 2, 1)],
        ..Observation::default()
    };
    for _ in 0..40 {
        pages.hear(&mut seen, |thread| (thread.0 == 1).then_some(1));
        pages.say(&Placement::default());
    }
    assert!(seen.threads.iter().all(|t| t.hint.is_none()));
}

#[test]
fn a_program_that_opens_something_else_under_the_number_has_no_pages_any_more() {
    let ours = honest();
    let disk = tempfile::tempfile().unwrap();
    let number = fcntl(&ours, FcntlArg::F_DUPFD_CLOEXEC(500)).unwrap();
    let shared = ProgramPages::open(
        std::process::id(),
        own_user(),
        format!("/proc/self/fd/{number}").into(),
    )
    .unwrap();
    assert!(shared.is_there());
    for other in [honest(), disk] {
        // SAFETY: plain system call on descriptors of this test.
        unsafe { libc::dup2(other.as_raw_fd(), number) };
        assert!(!shared.is_there());
    }
    // SAFETY: the descriptor was opened above, and no other owner has it.
    unsafe { libc::close(number) };
    assert!(!shared.is_there());
}
