//! Every variant of every error has the exit code documented in the README.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::anyhow;
use countersteer_bpf::{KernelEngineError, NoScx};
use countersteer_cache::signature::SignatureError;
use countersteer_cache::trace::TraceError;
use countersteer_cache::wire::WireError;
use countersteer_counters::{CounterError, VendorError};
use countersteer_live::online::OnlineError;
use countersteer_live::placer::EngineError;
use countersteer_live::undo::JournalError;
use countersteer_model::counters::{PlanError, SpecError};
use countersteer_model::cpuset::CpuSet;
use countersteer_model::metric::NameTaken;
use countersteer_model::policy::PolicyError;
use countersteer_model::textfile::TextError;
use countersteer_model::units::Nanos;
use countersteer_profiler::ProfileError;
use countersteer_report::ReportError;
use countersteer_sim::engine::SimError;
use countersteer_sim::progress::ModelError;
use countersteer_sysfs::launch::LaunchError;
use countersteer_sysfs::procfs::{PROC, ProcError};
use countersteer_sysfs::topology::DetectError;
use countersteer_sysfs::unavailable::Unavailable;

use super::{FaultKind, failure, kind_of};
use crate::steering::error::SteeringError;
use crate::waits::WaitsError;

fn s() -> String {
    "x".into()
}

fn path() -> PathBuf {
    "x".into()
}

fn absent() -> io::Error {
    io::ErrorKind::NotFound.into()
}

fn forbidden() -> io::Error {
    io::ErrorKind::PermissionDenied.into()
}

fn spec() -> SpecError {
    SpecError::new("x", 0, "x")
}

fn failed() -> ExitStatus {
    ExitStatus::from_raw(256)
}

fn journal() -> JournalError {
    JournalError {
        path: path(),
        source: absent(),
    }
}

fn proc_error() -> ProcError {
    PROC.pressure("none").unwrap_err()
}

fn unavailable() -> Unavailable {
    Unavailable {
        why: s(),
        remedy: s(),
    }
}

fn not_counted() -> CounterError {
    CounterError::Forbidden {
        event: s(),
        target: s(),
        paranoid: s(),
        wanted: 2,
    }
}

fn no_trace() -> ModelError {
    ModelError::NoTrace { profile: s() }
}

fn ejected() -> KernelEngineError {
    KernelEngineError::Ejected {
        reason: s(),
        message: s(),
    }
}

/// Asserts that these errors have a kind, also after the caller adds context.
macro_rules! are {
    ($kind:expr, $($error:expr),+ $(,)?) => {
        $({
            let error = anyhow::Error::from($error);
            let shown = format!("{error:?}");
            assert_eq!(kind_of(&error), $kind, "{shown}");
            assert_eq!(kind_of(&error.context("x")), $kind, "{shown}, in context");
        })+
    };
}

#[test]
fn kinds_are_the_exit_codes_of_the_readme() {
    let promised = [
        (FaultKind::Usage, "wrong use"),
        (FaultKind::BadInput, "a file that cannot be understood"),
        (FaultKind::Missing, "something is missing"),
        (FaultKind::Io, "reading or writing failed"),
        (FaultKind::Internal, "a defect"),
    ];
    let codes = promised.map(|(kind, words)| format!("{} {words}", kind as u8));
    let readme = include_str!("../../../../README.md");
    let line = format!("Exit codes: {};", codes.join(", "));
    assert!(readme.contains(&line), "{line}");
    for (kind, _) in promised {
        are!(kind, failure(kind, "x"));
    }
}

#[test]
fn wrong_use_has_its_own_kind() {
    are!(
        FaultKind::Usage,
        ReportError::UnknownProgram {
            asked: s(),
            known: s(),
        },
        spec(),
        NameTaken("x"),
        PlanError::Empty,
        PlanError::TooLarge { set: 0, found: 1 },
        PlanError::NoPeriod { sets: 2 },
        PolicyError::Taken(s()),
        PolicyError::Fixed,
        PolicyError::NotKeyValue(s()),
        SimError::OutOfTime {
            at: Nanos::ZERO,
            budget: Duration::ZERO,
        },
        countersteer_scx::ScxError::BadParameter {
            path: path(),
            why: s(),
        },
        ProfileError::EmptyCommand,
        CounterError::Spec(spec()),
        CounterError::Metric(spec()),
        CounterError::Plan(PlanError::Empty),
        CounterError::SystemOnly { event: s() },
        CounterError::Offline {
            cpu: 1,
            online: s(),
        },
        KernelEngineError::Crowded { cpus: s() },
        KernelEngineError::TooBig {
            what: "x",
            have: 2,
            most: 1,
        },
        SteeringError::OtherMachine {
            machine: s(),
            cpu: 1,
            online: CpuSet::default(),
        },
        SteeringError::BoundPolicy { policy: s() },
        SteeringError::UnavailablePolicy {
            policy: s(),
            what: "x",
        },
        SteeringError::NoQueues,
        SteeringError::NoLoopback(([0, 0, 0, 0], 9).into()),
        SteeringError::UnknownSide {
            name: s(),
            known: s(),
        },
    );
}

#[test]
fn what_a_file_says_has_its_own_kind() {
    let text = || TextError::value("x", "x");
    are!(
        FaultKind::BadInput,
        text(),
        TraceError::Foreign { path: s() },
        TraceError::Damaged {
            path: s(),
            offset: 0,
            why: s(),
        },
        TraceError::Unlike {
            path: s(),
            why: "x",
        },
        TraceError::Import {
            path: s(),
            line: 1,
            why: s(),
        },
        SignatureError::Foreign {
            path: s(),
            why: s(),
        },
        SignatureError::Elf {
            path: s(),
            why: s(),
        },
        WireError { at: 0, why: "x" },
        ReportError::Text(text()),
        ReportError::Taken { path: path() },
        ReportError::ReplayOver { steps: 1 },
        ReportError::Lacking { why: s() },
        ReportError::Foreign {
            path: path(),
            why: s(),
        },
        ReportError::Damaged {
            path: path(),
            why: s(),
        },
        ReportError::Newer {
            path: path(),
            schema: s(),
            reads: "x",
        },
        ReportError::NotRecorded {
            what: "x",
            detail: s(),
        },
        ReportError::Draw {
            chart: "x",
            why: s(),
        },
        ReportError::OutsideRun {
            asked_s: 1.0,
            end_s: 0.0,
        },
        ReportError::NotAlive {
            program: s(),
            asked_s: 1.0,
            from_s: 0.0,
            to_s: 0.0,
        },
        no_trace(),
        ModelError::CoreType {
            profile: s(),
            core_type: s(),
            machine: s(),
            known: s(),
        },
        SimError::Model(no_trace()),
        SimError::Scheduler {
            at: Nanos::ZERO,
            why: s(),
        },
        countersteer_scx::ScxError::Endless {
            path: path(),
            seconds: 60,
        },
        countersteer_scx::ScxError::Unreadable {
            path: path(),
            why: io::ErrorKind::InvalidData.into(),
        },
        countersteer_scx::ScxError::Lacking {
            path: path(),
            names: s(),
        },
        ProfileError::NotAProgram { path: s() },
        ProfileError::Nothing { program: s() },
        ProfileError::Interrupted {
            program: s(),
            signal: 2,
        },
        ProfileError::Architecture {
            path: s(),
            machine: s(),
        },
        ProfileError::Raw {
            path: path(),
            reason: s(),
        },
    );
    are!(
        FaultKind::BadInput,
        CounterError::Malformed {
            path: path(),
            content: s(),
            expected: "x",
        },
        CounterError::Vendor(VendorError::Json {
            path: path(),
            source: serde_json::Error::io(absent()),
        }),
        VendorError::Event {
            path: path(),
            number: 1,
            name: s(),
            why: s(),
        },
        CounterError::Vendor(VendorError::Event {
            path: path(),
            number: 1,
            name: s(),
            why: s(),
        }),
        CounterError::Vendor(VendorError::Map {
            path: path(),
            line: 1,
            why: s(),
        }),
        DetectError::Impossible {
            root: path(),
            problem: s(),
        },
        DetectError::Description {
            name: s(),
            why: s()
        },
        SteeringError::FailedRun {
            side: s(),
            code: 1,
            said: s(),
        },
        SteeringError::Score {
            command: s(),
            printed: s(),
        },
    );
}

#[test]
fn what_is_missing_has_its_own_kind() {
    are!(
        FaultKind::Missing,
        ReportError::Absent { path: path() },
        ProfileError::NoQemu {
            architecture: "x86_64"
        },
        ProfileError::NotThere {
            variable: "X",
            file: path(),
        },
        ProfileError::NoPlugin { searched: s() },
        ProfileError::NotFound { program: s() },
        ProfileError::PluginRefused {
            qemu: path(),
            plugin: path(),
        },
        ProfileError::PluginVersion {
            plugin: path(),
            found: 1,
            expected: 2,
        },
        LaunchError::NotFound { program: s() },
        CounterError::Launch(LaunchError::NotFound { program: s() }),
        CounterError::Gone { what: "x", id: 1 },
        DetectError::Nothing { root: path() },
        CounterError::Cgroup {
            path: path(),
            source: forbidden(),
        },
        CounterError::CgroupUncounted {
            path: path(),
            remedy: s(),
        },
        unavailable(),
        OnlineError::Unavailable(unavailable()),
        OnlineError::Unable {
            why: s(),
            remedy: s(),
        },
        KernelEngineError::Gone(1),
        NoScx::NoKernel,
        NoScx::Occupied(s()),
        SteeringError::NoControlGroup(path()),
        WaitsError::Unmeasured(s()),
    );
}

#[test]
fn what_the_system_refuses_has_its_own_kind() {
    are!(
        FaultKind::Io,
        journal(),
        proc_error(),
        ReportError::Write {
            path: path(),
            source: absent(),
        },
        ReportError::CutShort {
            dir: path(),
            path: path(),
            source: absent(),
        },
        ProfileError::NotExecutable { path: s() },
        ProfileError::Unwritable {
            path: path(),
            source: absent(),
        },
        LaunchError::Start {
            program: s(),
            source: absent(),
        },
        LaunchError::Output {
            path: path(),
            source: absent(),
        },
        not_counted(),
        CounterError::Proc(proc_error()),
        CounterError::NoBpf { reason: s() },
        CounterError::Refused {
            event: s(),
            target: s(),
            source: absent(),
        },
        CounterError::TooManyFiles {
            needed: 2,
            limit: 1,
        },
        CounterError::Ring {
            cpu: 1,
            source: absent(),
        },
        CounterError::System {
            doing: "x",
            source: absent(),
        },
        OnlineError::Journal(journal()),
        OnlineError::Counters(not_counted()),
        EngineError::Journal(journal()),
        EngineError::Counters(not_counted()),
        EngineError::Uncounted(s()),
        EngineError::Scheduler(ejected().into()),
        EngineError::Ended {
            why: ejected().into(),
            at: Nanos::ZERO,
        },
        ejected(),
        KernelEngineError::Journal(journal()),
        KernelEngineError::Counters(not_counted()),
        KernelEngineError::Kernel {
            what: "x",
            source: absent().into(),
        },
        SteeringError::SocketInUse(path()),
        SteeringError::OtherUser {
            process: s(),
            user: 1,
        },
        SteeringError::SchedulerEnded {
            name: s(),
            status: failed(),
        },
        SteeringError::SchedulerLate {
            name: s(),
            after_s: 1,
        },
    );
}

#[test]
fn a_file_is_missing_or_cannot_be_read_by_the_word_of_the_system() {
    for (of, kind) in [
        (io::ErrorKind::NotFound, FaultKind::Missing),
        (io::ErrorKind::PermissionDenied, FaultKind::Io),
    ] {
        let source = || io::Error::from(of);
        are!(
            kind,
            source(),
            TraceError::Io {
                path: s(),
                source: source(),
            },
            SignatureError::Io {
                path: s(),
                source: source(),
            },
            CounterError::Vendor(VendorError::Unreadable {
                path: path(),
                source: source(),
            }),
            ReportError::Thread { source: source() },
            ReportError::Read {
                path: path(),
                source: source(),
            },
            ProfileError::Scratch {
                path: path(),
                source: source(),
            },
            ProfileError::Launch {
                qemu: path(),
                source: source(),
            },
            OnlineError::File {
                doing: "x",
                path: path(),
                source: source(),
                remedy: "x",
            },
            OnlineError::Process {
                doing: s(),
                source: source(),
                remedy: "x",
            },
        );
    }
}

#[test]
fn the_rest_is_a_defect() {
    are!(
        FaultKind::Internal,
        anyhow!("x"),
        SimError::Stuck { at: Nanos::ZERO },
        CounterError::Region("x"),
        SteeringError::StuckPolicy,
        WaitsError::Panicked,
        ReportError::Encode {
            table: "x",
            why: s(),
        },
    );
}
