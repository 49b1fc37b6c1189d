//! Tests of the API as C programs use it. The examples are compiled against the library and run, and the border is tested with
//! invalid arguments.

#![allow(clippy::unwrap_used, clippy::panic)] // a test helper that fails has failed its test

use std::ffi::{CStr, CString};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;

use countersteer_c::*;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Folder with the library as it is installed, and the compiler to link against it.
struct Built {
    folder: tempfile::TempDir,
}

impl Built {
    fn new() -> Option<Self> {
        if Command::new("cc").arg("--version").output().is_err() {
            countersteer_fuzz::skipped("there is no C compiler; `make setup` installs one");
            return None;
        }
        let test = std::env::current_exe().unwrap();
        let folders = [test.parent().unwrap(), test.ancestors().nth(2).unwrap()];
        let library = folders
            .iter()
            .map(|f| f.join("libcountersteer_c.so"))
            .find(|l| l.is_file())
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        for name in ["libcountersteer.so", "libcountersteer.so.0"] {
            symlink(&library, folder.path().join(name)).unwrap();
        }
        Some(Self { folder })
    }

    fn compile(&self, source: &Path, options: &[&str]) -> PathBuf {
        let program = self.folder.path().join(source.file_stem().unwrap());
        let mut cc = Command::new("cc");
        cc.args([
            "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-I",
        ])
        .arg(format!("{HERE}/include"));
        cc.args(options)
            .arg(source)
            .arg("-L")
            .arg(self.folder.path())
            .args(["-lcountersteer", "-o"])
            .arg(&program);
        let output = cc.output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        program
    }

    fn run(&self, source: &str, arguments: &[&str]) -> (bool, String, String) {
        let program = self.compile(&Path::new(HERE).join(source), &[]);
        let output = Command::new(program)
            .args(arguments)
            .env("LD_LIBRARY_PATH", self.folder.path())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.success(),
            text(&output.stdout),
            text(&output.stderr),
        )
    }
}

/// True if the kernel lets this test count; reports a skip if not.
fn counts() -> bool {
    let opened = open("task_clock,page_faults");
    match opened {
        Ok(region) => {
            // SAFETY: just opened.
            unsafe { cs_close(region) };
            true
        }
        Err((code, message)) => {
            countersteer_fuzz::skipped(format_args!("nothing is counted here ({code}: {message})"));
            false
        }
    }
}

fn message() -> String {
    // SAFETY: the library returns a C string.
    unsafe { CStr::from_ptr(cs_strerror()) }
        .to_str()
        .unwrap()
        .to_owned()
}

fn open(events: &str) -> Result<*mut cs_region, (i32, String)> {
    let text = CString::new(events).unwrap();
    let mut region = ptr::null_mut();
    // SAFETY: a C string, and a place for a pointer.
    match unsafe { cs_open(text.as_ptr(), 0, &raw mut region) } {
        0 => Ok(region),
        code => {
            assert!(region.is_null());
            Err((code, message()))
        }
    }
}

fn number(output: &str, name: &str) -> u64 {
    let line = output
        .lines()
        .find(|l| l.starts_with(name))
        .unwrap_or_else(|| panic!("no {name} in {output}"));
    line.split(' ').find_map(|word| word.parse().ok()).unwrap()
}

#[test]
fn a_region_in_c_counts_the_pages_it_touches() {
    let Some(built) = Built::new().filter(|_| counts()) else {
        return;
    };
    let (ended, output, errors) =
        built.run("examples/region.c", &["task_clock,page_faults", "700"]);
    assert!(ended, "{errors}");
    assert!(number(&output, "task_clock ") > 0);
    let faults = number(&output, "page_faults ");
    assert!((700..1400).contains(&faults), "{output}");
    let (ended, _, errors) = built.run("examples/region.c", &["task_clok"]);
    assert!(
        !ended && errors.contains("did you mean `task_clock`"),
        "{errors}"
    );
}

#[test]
fn a_callback_in_c_is_called_each_so_many_events() {
    let Some(built) = Built::new().filter(|_| counts()) else {
        return;
    };
    for (how, arguments) in [
        ("polled", &["page_faults,task_clock", "100", "1000"][..]),
        (
            "watched",
            &["page_faults,task_clock", "100", "1000", "watch"],
        ),
    ] {
        let (ended, output, errors) = built.run("examples/every.c", arguments);
        assert!(ended, "{errors}");
        let moments = output
            .lines()
            .filter(|l| l.starts_with(&format!("{how} page_faults 100 task_clock ")))
            .count();
        assert!((10..13).contains(&moments), "{output}");
        assert!(output.ends_with("lost 0\n"), "{output}");
    }
}

#[test]
fn virtual_counters_in_c_are_read_or_refused_with_the_reason() {
    let Some(built) = Built::new() else { return };
    if Path::new("/proc/pressure/cpu").exists() {
        let (ended, output, errors) = built.run("examples/meters.c", &["pressure_cpu_some_s"]);
        assert!(
            ended
                && output.starts_with("pressure_cpu_some_s machine -1 -1 ")
                && output.ends_with(" s\n"),
            "{output}{errors}"
        );
    }
    let (ended, _, errors) = built.run("examples/meters.c", &["energie_j"]);
    assert!(!ended && errors.contains("there are energy_j"), "{errors}");
}

unsafe extern "C" fn add(moment: *const cs_moment, user: *mut std::ffi::c_void) {
    // SAFETY: the library passes a moment, and the tests a number.
    unsafe { *user.cast::<u64>() += (*(*moment).counts).value };
}

#[test]
fn a_watched_every_is_not_polled_and_nothing_null_is_used() {
    let mut every = ptr::null_mut();
    let mut sum = 0_u64;
    let user = (&raw mut sum).cast();
    // SAFETY: null is under test; the rest are C strings, places for pointers, and a number that outlives its use.
    unsafe {
        assert_eq!(
            cs_every_open(ptr::null(), 1, 0, &raw mut every),
            CS_ERROR_ARGUMENT
        );
        assert_eq!(
            cs_every_open(c"page_faults".as_ptr(), 0, 0, &raw mut every),
            CS_ERROR_ARGUMENT
        );
        assert_eq!(
            cs_every_open(c"page_faults".as_ptr(), 1, CS_INHERIT, &raw mut every),
            CS_ERROR_ARGUMENT
        );
        assert_eq!(
            cs_every_open_thread(c"page_faults".as_ptr(), 1, -1, 0, &raw mut every),
            CS_ERROR_ARGUMENT
        );
        assert_eq!(
            cs_every_open(c"no_such_event".as_ptr(), 1, 0, &raw mut every),
            CS_ERROR_EVENTS
        );
        for call in [cs_every_start, cs_every_stop, cs_every_fd, cs_every_lost] {
            assert_eq!(call(ptr::null_mut()), CS_ERROR_ARGUMENT);
        }
        cs_every_close(ptr::null_mut());
        let mut meters = ptr::null_mut();
        assert_eq!(
            cs_meters_open(ptr::null(), &raw mut meters),
            CS_ERROR_ARGUMENT
        );
        assert_eq!(
            cs_meters_open(c"x".as_ptr(), ptr::null_mut()),
            CS_ERROR_ARGUMENT
        );
        assert_eq!(
            cs_meters_read(ptr::null_mut(), ptr::null_mut(), 0),
            CS_ERROR_ARGUMENT
        );
        assert_eq!(cs_meters_follow(ptr::null_mut(), 1), CS_ERROR_ARGUMENT);
        cs_meters_close(ptr::null_mut());
        if !counts() {
            return;
        }
        assert_eq!(
            cs_every_open(c"page_faults".as_ptr(), 1, 0, &raw mut every),
            0
        );
        assert_eq!(cs_every_poll(every, 0, None, user), CS_ERROR_ARGUMENT);
        assert_eq!(cs_every_poll(every, 0, Some(add), user), 0);
        assert_eq!(cs_every_watch(every, Some(add), user), 0);
        assert_eq!(cs_every_watch(every, Some(add), user), CS_ERROR_STATE);
        assert_eq!(cs_every_poll(every, 0, Some(add), user), CS_ERROR_STATE);
        assert!(message().contains("cs_every_watch"), "{}", message());
        assert_eq!(cs_every_start(every), 0);
        let pages: Vec<Vec<u8>> = (0..64).map(|_| vec![1; 1 << 18]).collect();
        assert_eq!(cs_every_stop(every), 0);
        drop(pages);
        cs_every_close(every);
    }
    assert!(sum > 0, "closing hands on what there is");
}

#[test]
fn structures_are_laid_out_the_same_in_c() {
    use std::mem::offset_of;
    let Some(built) = Built::new() else { return };
    let mut source = "#include <countersteer.h>\n#include <stddef.h>\n".to_owned();
    let mut same = |c: &str, rust: usize| {
        source.push_str(&format!("_Static_assert({c} == {rust}, \"{c}\");\n"))
    };
    same("sizeof(cs_told)", size_of::<cs_told>());
    same(
        "offsetof(cs_told, qos_permille)",
        offset_of!(cs_told, qos_permille),
    );
    same("offsetof(cs_told, phase)", offset_of!(cs_told, phase));
    same("offsetof(cs_told, workers)", offset_of!(cs_told, workers));
    same("sizeof(cs_advice)", size_of::<cs_advice>());
    same("offsetof(cs_advice, rank)", offset_of!(cs_advice, rank));
    same(
        "offsetof(cs_advice, core_types)",
        offset_of!(cs_advice, core_types),
    );
    same("offsetof(cs_advice, sf)", offset_of!(cs_advice, sf));
    same("offsetof(cs_advice, speed)", offset_of!(cs_advice, speed));
    same("offsetof(cs_advice, share)", offset_of!(cs_advice, share));
    same(
        "offsetof(cs_advice, core_type)",
        offset_of!(cs_advice, core_type),
    );
    let path = built.folder.path().join("layout.c");
    std::fs::write(&path, source + "int main(void) { return 0; }\n").unwrap();
    built.compile(&path, &[]);
}

#[test]
fn a_pool_in_c_works_without_an_engine() {
    let Some(built) = Built::new() else { return };
    let (ended, output, errors) = built.run("examples/chunks.c", &["3", "4"]);
    assert!(ended && errors.is_empty(), "{errors}");
    assert!(
        output.starts_with("equal chunks ") && output.ends_with("nobody steers this program\n"),
        "{output}"
    );
}

#[test]
fn pages_refuse_what_cannot_be_and_silence_is_no_advice() {
    let mut page = ptr::null_mut();
    let hint = cs_told {
        priority: 3,
        qos_permille: 500,
        phase: CS_PHASE_SPINNING,
        workers: 4,
    };
    let mut advice = cs_advice {
        epoch: 0,
        rank: 0,
        core_types: 0,
        reserved: 0,
        sf: 0.0,
        speed: 0.0,
        share: 0.0,
        core_type: [0; 32],
    };
    // SAFETY: null is under test; the rest are places for output, and a page until it is closed.
    unsafe {
        assert_eq!(cs_page_open(ptr::null_mut()), CS_ERROR_ARGUMENT);
        assert_eq!(
            cs_page_tell(ptr::null_mut(), &raw const hint),
            CS_ERROR_ARGUMENT
        );
        assert_eq!(cs_page_phase(ptr::null_mut(), 0), CS_ERROR_ARGUMENT);
        assert_eq!(
            cs_page_read(ptr::null_mut(), &raw mut advice),
            CS_ERROR_ARGUMENT
        );
        assert_eq!(cs_page_epoch(ptr::null_mut()), 0);
        cs_page_close(ptr::null_mut());
        assert_eq!(cs_page_open(&raw mut page), 0, "{}", message());
        let mut again = ptr::null_mut();
        assert_eq!((cs_page_open(&raw mut again), again), (0, page));
        assert_eq!(cs_page_tell(page, &raw const hint), 0);
        assert_eq!(cs_page_tell(page, ptr::null()), CS_ERROR_ARGUMENT);
        for wrong in [
            cs_told {
                priority: 11,
                ..hint
            },
            cs_told {
                qos_permille: 1001,
                ..hint
            },
            cs_told { phase: 3, ..hint },
        ] {
            assert_eq!(
                cs_page_tell(page, &raw const wrong),
                CS_ERROR_ARGUMENT,
                "{wrong:?}"
            );
        }
        assert_eq!(cs_page_phase(page, CS_PHASE_RUNNING), 0);
        assert_eq!(
            (cs_page_work(page, 1), cs_page_work(ptr::null_mut(), 1)),
            (0, CS_ERROR_ARGUMENT)
        );
        assert_eq!(cs_page_phase(page, 3), CS_ERROR_ARGUMENT);
        assert_eq!(cs_page_read(page, &raw mut advice), 0);
        assert_eq!(cs_page_read(page, ptr::null_mut()), CS_ERROR_ARGUMENT);
        cs_page_close(page);
    }
}

#[test]
fn each_thread_in_c_counts_its_own() {
    let Some(built) = Built::new().filter(|_| counts()) else {
        return;
    };
    let (ended, output, errors) = built.run("examples/pthreads.c", &["3", "500"]);
    assert!(ended, "{errors}");
    let last = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    let each: Vec<u64> = output
        .lines()
        .filter(|l| l.starts_with("thread "))
        .map(last)
        .collect();
    assert!(
        each.len() == 3 && each.iter().all(|n| (500..1000).contains(n)),
        "{output}"
    );
    assert_eq!(number(&output, "page_faults "), each.iter().sum::<u64>());
    assert!(number(&output, "task_clock ") > 0);
}

#[test]
fn hardware_events_are_counted_or_refused_with_the_reason() {
    match open("instructions,cycles") {
        Err((code, message)) => {
            countersteer_fuzz::skipped(format_args!("no hardware counters here ({message})"));
            assert!(
                [CS_ERROR_EVENTS, CS_ERROR_REFUSED, CS_ERROR_PERMISSION].contains(&code),
                "{code}: {message}"
            );
            assert!(!message.is_empty());
        }
        Ok(region) => {
            let mut counts = [EMPTY; 16];
            // SAFETY: just opened, and there is room for 16 counts.
            let n = unsafe {
                assert_eq!((cs_start(region), cs_stop(region)), (0, 0));
                cs_read(region, counts.as_mut_ptr(), counts.len())
            };
            assert!(
                counts[..n as usize]
                    .iter()
                    .any(|c| c.available == 1 && c.value > 0)
            );
            // SAFETY: open until here.
            unsafe { cs_close(region) };
        }
    }
}

const EMPTY: cs_count = cs_count {
    name: ptr::null(),
    unit: ptr::null(),
    core_type: ptr::null(),
    value: 0,
    enabled_ns: 0,
    running_ns: 0,
    available: 0,
    reserved: 0,
};

#[test]
fn null_pointers_and_wrong_arguments_are_errors_that_name_them() {
    let mut region = ptr::null_mut();
    // SAFETY: null is under test; the rest are C strings and places for pointers.
    unsafe {
        for call in [cs_start, cs_stop, cs_reset, cs_user_only] {
            assert_eq!(call(ptr::null_mut()), CS_ERROR_ARGUMENT);
            assert!(
                message().starts_with("region is a null pointer"),
                "{}",
                message()
            );
        }
        assert_eq!(
            cs_read(ptr::null_mut(), ptr::null_mut(), 0),
            CS_ERROR_ARGUMENT
        );
        assert_eq!(cs_open(ptr::null(), 0, &raw mut region), CS_ERROR_ARGUMENT);
        assert_eq!(
            cs_open(c"task_clock".as_ptr(), 0, ptr::null_mut()),
            CS_ERROR_ARGUMENT
        );
        assert_eq!(
            cs_open(c"task_clock".as_ptr(), 64, &raw mut region),
            CS_ERROR_ARGUMENT
        );
        assert_eq!(
            cs_open(c"\xff".as_ptr(), 0, &raw mut region),
            CS_ERROR_ARGUMENT
        );
        assert_eq!(
            cs_open_thread(c"task_clock".as_ptr(), 0, 0, &raw mut region),
            CS_ERROR_ARGUMENT
        );
        assert_eq!(
            cs_open(c"no_such_event".as_ptr(), 0, &raw mut region),
            CS_ERROR_EVENTS
        );
        cs_close(ptr::null_mut());
    }
}

#[test]
fn messages_belong_to_the_thread_that_failed() {
    // SAFETY: null is under test.
    unsafe { cs_start(ptr::null_mut()) };
    std::thread::spawn(|| assert_eq!(message(), ""))
        .join()
        .unwrap();
    assert!(message().contains("null pointer"));
}

#[test]
fn a_region_tells_how_many_counts_it_has_and_writes_no_more_than_asked_for() {
    if !counts() {
        return;
    }
    let region = open("task_clock,page_faults").unwrap();
    let mut counts = [EMPTY; 3];
    // SAFETY: open, and there is room for the requested number.
    unsafe {
        assert_eq!(cs_stop(region), CS_ERROR_STATE);
        assert_eq!(cs_read(region, ptr::null_mut(), 0), 2);
        assert_eq!(cs_read(region, ptr::null_mut(), 1), CS_ERROR_ARGUMENT);
        assert_eq!(cs_start(region), 0);
        assert_eq!(cs_start(region), CS_ERROR_STATE);
        assert_eq!(cs_read(region, counts.as_mut_ptr(), 1), 2);
        assert!(counts[1].name.is_null(), "written behind the end");
        assert_eq!(cs_stop(region), 0);
        assert_eq!(cs_read(region, counts.as_mut_ptr(), 3), 2);
        assert_eq!(CStr::from_ptr(counts[0].name).to_str(), Ok("task_clock"));
        assert_eq!(CStr::from_ptr(counts[0].unit).to_str(), Ok("ns"));
        assert!(counts[0].available == 1 && counts[0].value > 0 && counts[0].core_type.is_null());
        assert!(counts[0].enabled_ns > 0 && counts[0].enabled_ns == counts[0].running_ns);
        assert_eq!(cs_reset(region), 0);
        assert_eq!(cs_read(region, counts.as_mut_ptr(), 3), 2);
        assert_eq!(counts[0].value, 0);
        cs_close(region);
    }
}

#[test]
fn the_header_says_what_the_library_has() {
    let header = std::fs::read_to_string(format!("{HERE}/include/countersteer.h")).unwrap();
    let codes = [
        ("CS_ERROR_ARGUMENT", CS_ERROR_ARGUMENT),
        ("CS_ERROR_EVENTS", CS_ERROR_EVENTS),
        ("CS_ERROR_PERMISSION", CS_ERROR_PERMISSION),
        ("CS_ERROR_REFUSED", CS_ERROR_REFUSED),
        ("CS_ERROR_STATE", CS_ERROR_STATE),
        ("CS_ERROR_SYSTEM", CS_ERROR_SYSTEM),
        ("CS_ERROR_INTERNAL", CS_ERROR_INTERNAL),
    ];
    for (name, code) in codes {
        assert!(
            header.contains(&format!("#define {name} ({code})")),
            "{name}"
        );
    }
    assert!(header.contains(&format!("#define CS_INHERIT {CS_INHERIT}u")));
    let sources = ["lib", "every", "meters", "pages"]
        .map(|name| std::fs::read_to_string(format!("{HERE}/src/{name}.rs")).unwrap());
    let source = sources.concat();
    assert!(header.contains(&format!("#define CS_EVERY_FOREVER ({CS_EVERY_FOREVER})")));
    let manual = std::fs::read_to_string(format!("{HERE}/man/libcountersteer.3")).unwrap();
    let exported = source
        .lines()
        .filter(|l| l.starts_with("pub ") && l.contains("extern \"C\" fn "));
    let name = |line: &str| {
        line.split("fn ")
            .nth(1)
            .unwrap()
            .split('(')
            .next()
            .unwrap()
            .to_owned()
    };
    let names: Vec<String> = exported.map(name).collect();
    assert_eq!(names.len(), 31, "{names:?}");
    for (name, phase) in [
        ("RUNNING", CS_PHASE_RUNNING),
        ("SPINNING", CS_PHASE_SPINNING),
        ("BLOCKED", CS_PHASE_BLOCKED),
    ] {
        assert!(
            header.contains(&format!("#define CS_PHASE_{name} {phase}u")),
            "{name}"
        );
    }
    for name in names {
        assert!(header.contains(&format!("{name}(")), "{name}");
        assert!(
            manual.contains(&format!(".Fn {name} ")),
            "the manual lacks {name}"
        );
    }
    let version = cs_version();
    // SAFETY: the library returns a C string.
    assert_eq!(
        unsafe { CStr::from_ptr(version) }.to_str(),
        Ok(env!("CARGO_PKG_VERSION"))
    );
}
