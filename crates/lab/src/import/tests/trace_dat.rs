//! Files as trace-cmd writes them, of both versions, byte orders and compressions.

use super::super::trace_dat;
use super::*;

const SWITCH: u16 = 300;
const WAKING: u16 = 301;
const OTHER: u16 = 302;
const PAGE: usize = 4096;

/// Kind of file to build.
#[derive(Clone, Copy, Debug)]
struct Form {
    version: u8,
    is_big: bool,
    is_compressed: bool,
}

const FORMS: [Form; 4] = [
    Form {
        version: 6,
        is_big: false,
        is_compressed: false,
    },
    Form {
        version: 6,
        is_big: true,
        is_compressed: false,
    },
    Form {
        version: 7,
        is_big: false,
        is_compressed: false,
    },
    Form {
        version: 7,
        is_big: false,
        is_compressed: true,
    },
];

/// Bytes with numbers in the byte order of a form.
struct Bytes {
    bytes: Vec<u8>,
    is_big: bool,
}

impl Bytes {
    fn new(is_big: bool) -> Self {
        Self {
            bytes: Vec::new(),
            is_big,
        }
    }

    fn number(&mut self, number: u64, size: usize) {
        let bytes = number.to_be_bytes();
        let bytes = &bytes[8 - size..];
        if self.is_big {
            self.bytes.extend(bytes);
        } else {
            self.bytes.extend(bytes.iter().rev());
        }
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64, 8);
        self.bytes.extend(text.as_bytes());
    }
}

fn format_of(name: &str, id: u16, fields: &[(&str, usize, usize)]) -> String {
    let common = [
        ("unsigned short common_type", 0, 2),
        ("unsigned char common_flags", 2, 1),
        ("int common_pid", 4, 4),
    ];
    let field = |(declared, at, size): &(&str, usize, usize)| {
        format!("\tfield:{declared};\toffset:{at};\tsize:{size};\tsigned:0;\n")
    };
    let fields: String = common.iter().chain(fields).map(field).collect();
    format!("name: {name}\nID: {id}\nformat:\n{fields}\nprint fmt: \"\"\n")
}

fn formats() -> [String; 3] {
    [
        format_of(
            "sched_switch",
            SWITCH,
            &[
                ("char prev_comm[16]", 8, 16),
                ("pid_t prev_pid", 24, 4),
                ("int prev_prio", 28, 4),
                ("long prev_state", 32, 8),
                ("char next_comm[16]", 40, 16),
                ("pid_t next_pid", 56, 4),
                ("int next_prio", 60, 4),
            ],
        ),
        format_of(
            "sched_waking",
            WAKING,
            &[
                ("char comm[16]", 8, 16),
                ("pid_t pid", 24, 4),
                ("int prio", 28, 4),
                ("int target_cpu", 32, 4),
            ],
        ),
        format_of("irq_handler_entry", OTHER, &[("int irq", 8, 4)]),
    ]
}

/// Priority of a thread; `worker` has nice value 5.
fn priority(tid: i32) -> u64 {
    if tid == 7 { 125 } else { 120 }
}

/// Data of all events, with their times in ns from the start of the trace.
fn events(is_big: bool) -> Vec<(u64, Vec<u8>)> {
    let head = |kind: u16| {
        let mut bytes = Bytes::new(is_big);
        bytes.number(kind.into(), 2);
        bytes.bytes.resize(8, 0);
        bytes
    };
    let comm = |bytes: &mut Bytes, tid: i32| {
        let end = bytes.bytes.len() + 16;
        bytes.bytes.extend(name(tid).as_bytes());
        bytes.bytes.resize(end, 0);
        bytes.number(tid as u64, 4);
        bytes.number(priority(tid), 4);
    };
    let mut events = Vec::new();
    let all = [(0, 0, 'R', 7)].into_iter().chain(SWITCHES);
    for (at, prev, state, next) in all.chain([(END_MS, 7, 'S', 0)]) {
        let mut bytes = head(SWITCH);
        comm(&mut bytes, prev);
        // A preempted thread has a bit above those of the states.
        bytes.number(if state == 'S' { 1 } else { 0x100 }, 8);
        comm(&mut bytes, next);
        events.push((at * 1_000_000, bytes.bytes));
    }
    for at in WAKES_MS {
        let mut bytes = head(WAKING);
        comm(&mut bytes, 7);
        bytes.number(0, 4);
        events.push((at * 1_000_000 - 1000, bytes.bytes));
        let mut other = head(OTHER);
        other.number(9, 4);
        events.push((at * 1_000_000 - 500, other.bytes));
    }
    events.sort_by_key(|(at, _)| *at);
    events
}

/// One page with all events: of every kind that the ring buffer has.
fn page(form: Form) -> Vec<u8> {
    const START: u64 = 5_000_000_000;
    let mut data = Bytes::new(form.is_big);
    let head = |kind: u64, delta: u64, data: &mut Bytes| {
        let word = if form.is_big {
            kind << 27 | delta
        } else {
            delta << 5 | kind
        };
        data.number(word, 4);
    };
    // A discarded event, which has a time too, and an absolute time.
    head(29, 1, &mut data);
    data.number(8, 4);
    data.number(0, 4);
    head(31, START & 0x7ff_ffff, &mut data);
    data.number(START >> 27, 4);
    let mut last = 0;
    for (at, event) in events(form.is_big) {
        let delta = at - last;
        last = at;
        // Times of more than 27 bits have a word of their own, of which every trace has some.
        head(30, delta & 0x7ff_ffff, &mut data);
        data.number(delta >> 27, 4);
        if event.len() % 8 == 4 {
            head(0, 0, &mut data);
            data.number(event.len() as u64 + 4, 4);
        } else {
            head(event.len() as u64 / 4, 0, &mut data);
        }
        data.bytes.extend(event);
    }
    let mut page = Bytes::new(form.is_big);
    page.number(1, 8);
    page.number(data.bytes.len() as u64, 8);
    page.bytes.extend(data.bytes);
    page.bytes.resize(PAGE, 0);
    page.bytes
}

const PAGE_FORMAT: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n";

/// Parts that both versions have: the formats of pages, of ftrace's own events (none), and of events.
fn parts(form: Form) -> [Vec<u8>; 3] {
    let mut pages = Bytes::new(form.is_big);
    pages.bytes.extend(b"header_page\0");
    pages.text(PAGE_FORMAT);
    pages.bytes.extend(b"header_event\0");
    pages.text("# compressed entry header\n");
    let mut own = Bytes::new(form.is_big);
    own.number(0, 4);
    let mut events = Bytes::new(form.is_big);
    events.number(1, 4);
    events.bytes.extend(b"sched\0");
    events.number(3, 4);
    for format in formats() {
        events.text(&format);
    }
    [pages.bytes, own.bytes, events.bytes]
}

fn file(form: Form) -> Vec<u8> {
    file_of(form, "")
}

/// Returns a file whose events are in the buffer of an instance, and its main buffer is empty; without a name they are in the main one.
fn file_of(form: Form, instance: &str) -> Vec<u8> {
    let mut file = Bytes::new(form.is_big);
    file.bytes.extend(b"\x17\x08Dtracing");
    file.bytes
        .extend([b'0' + form.version, 0, u8::from(form.is_big), 8]);
    file.number(PAGE as u64, 4);
    if form.version == 6 {
        end_6(file, form, instance)
    } else {
        end_7(file, form, instance)
    }
}

const STATS: &str = "entries: 9\noverrun: 2\ndropped events: 1\n\0";

fn end_6(mut file: Bytes, form: Form, instance: &str) -> Vec<u8> {
    for part in parts(form) {
        file.bytes.extend(part);
    }
    // No symbols, no formats of printk, one name.
    file.number(0, 4);
    file.number(0, 4);
    file.text("7 before\n");
    file.number(1, 4);
    file.bytes.extend(b"options  \0");
    file.number(2, 2);
    file.number(STATS.len() as u64, 4);
    file.bytes.extend(STATS.as_bytes());
    if !instance.is_empty() {
        let length = 8 + instance.len() + 1;
        file.number(3, 2);
        file.number(length as u64, 4);
        // Behind this option, the end of the options, and the main buffer's place.
        file.number((file.bytes.len() + length + 2 + 10 + 16) as u64, 8);
        file.bytes.extend(instance.as_bytes());
        file.bytes.extend(b"\0\0\0flyrecord\0");
        file.number(0, 8);
        file.number(0, 8);
        file.bytes.extend(b"options  \0");
    }
    file.number(0, 2);
    file.bytes.extend(b"flyrecord\0");
    let at = file.bytes.len() + 16;
    file.number(at as u64, 8);
    file.number(PAGE as u64, 8);
    file.bytes.extend(page(form));
    file.bytes
}

fn end_7(mut file: Bytes, form: Form, instance: &str) -> Vec<u8> {
    let codec: &[u8] = if form.is_compressed {
        b"zstd\x001.5\0"
    } else {
        b"none\0\0"
    };
    file.bytes.extend(codec);
    let options_at = file.bytes.len();
    file.number(0, 8);
    let pack = |data: &[u8]| {
        let mut packed = Bytes::new(form.is_big);
        let zstd = zstd::stream::encode_all(data, 1).unwrap();
        packed.number(zstd.len() as u64, 4);
        packed.number(data.len() as u64, 4);
        packed.bytes.extend(zstd);
        packed.bytes
    };
    let mut options = Bytes::new(form.is_big);
    let section = |file: &mut Bytes, id: u16, data: Vec<u8>| {
        let at = file.bytes.len() as u64;
        let data = if form.is_compressed {
            pack(&data)
        } else {
            data
        };
        file.number(id.into(), 2);
        file.number(form.is_compressed.into(), 2);
        file.number(0, 4);
        file.number(data.len() as u64, 8);
        file.bytes.extend(data);
        at
    };
    for (id, part) in (16..).zip(parts(form)) {
        let at = section(&mut file, id, part);
        options.number(id.into(), 2);
        options.number(8, 4);
        options.number(at, 8);
    }
    let pages = if form.is_compressed {
        let mut chunks = Bytes::new(form.is_big);
        chunks.number(1, 4);
        chunks.bytes.extend(pack(&page(form)));
        chunks.bytes
    } else {
        page(form)
    };
    let buffer_at = file.bytes.len() as u64;
    file.number(3, 2);
    file.number(form.is_compressed.into(), 2);
    file.number(0, 4);
    file.number(pages.len() as u64, 8);
    let mut buffer = Bytes::new(form.is_big);
    buffer.number(buffer_at, 8);
    buffer.bytes.extend(instance.as_bytes());
    buffer.bytes.extend(b"\0local\0");
    buffer.number(PAGE as u64, 4);
    buffer.number(1, 4);
    buffer.number(0, 4);
    buffer.number(file.bytes.len() as u64, 8);
    buffer.number(pages.len() as u64, 8);
    file.bytes.extend(pages);
    if !instance.is_empty() {
        let mut main = Bytes::new(form.is_big);
        main.number(buffer_at, 8);
        main.bytes.extend(b"\0local\0");
        main.number(PAGE as u64, 4);
        main.number(1, 4);
        main.bytes.resize(main.bytes.len() + 20, 0);
        options.number(3, 2);
        options.number(main.bytes.len() as u64, 4);
        options.bytes.extend(main.bytes);
    }
    for (id, data) in [(2, STATS.as_bytes()), (5, b"Linux\0"), (3, &*buffer.bytes)] {
        options.number(id, 2);
        options.number(data.len() as u64, 4);
        options.bytes.extend(data);
    }
    options.number(0, 2);
    options.number(8, 4);
    options.number(0, 8);
    let at = file.bytes.len() as u64;
    file.bytes[options_at..options_at + 8].copy_from_slice(&at.to_le_bytes());
    file.number(0, 2);
    file.number(0, 2);
    file.number(0, 4);
    file.number(options.bytes.len() as u64, 8);
    file.bytes.extend(options.bytes);
    file.bytes
}

/// Example for readers of changed bytes.
pub fn example() -> Vec<u8> {
    file(FORMS[3])
}

#[test]
fn all_forms_of_trace_cmd_give_what_ftrace_does() {
    for form in FORMS {
        let read = tasks("trace-cmd", &file(form));
        check(&read, &format!("{form:?}"));
        assert_eq!(read.tasks[1].nice, 5, "{form:?}");
        let [lost, not_kept] = &read.warnings[..] else {
            panic!("{form:?}: {:?}", read.warnings);
        };
        assert!(lost.starts_with("3 or more events were lost"), "{lost}");
        for part in [
            "3 x irq_handler_entry",
            "common_pid",
            "sched_waking.target_cpu",
        ] {
            assert!(not_kept.contains(part), "{part}: {not_kept}");
        }
        assert_eq!(not_kept.contains("uname"), form.version == 7, "{not_kept}");
    }
}

#[test]
fn events_of_an_instance_are_read_where_the_main_buffer_has_none() {
    for form in FORMS {
        let read = tasks("trace-cmd", &file_of(form, "own"));
        check(&read, &format!("{form:?}"));
        // The statistics are those of the main buffer.
        let warnings = read.warnings.join("\n");
        assert!(!warnings.contains("lost"), "{form:?}: {warnings}");
    }
}

#[test]
fn files_of_trace_cmd_that_are_not_read_say_why() {
    let refused = |bytes: &[u8]| {
        trace_dat::read("t.dat", bytes.to_vec())
            .unwrap_err()
            .to_string()
    };
    let whole = file(FORMS[2]);
    let version_5 = [&b"\x17\x08Dtracing5\0\0\x08"[..], &[0; 64]].concat();
    assert!(refused(&version_5).contains("version is 5"));
    let early = refused(&whole[..whole.len() - 20]);
    assert!(
        early.contains("damaged trace.dat: it ends within"),
        "{early}"
    );
    let replaced = |from: &[u8], to: &[u8], bytes: &[u8]| {
        let at = bytes.windows(from.len()).position(|w| w == from).unwrap();
        [&bytes[..at], to, &bytes[at + from.len()..]].concat()
    };
    let zlib = refused(&replaced(b"zstd", b"zlib", &file(FORMS[3])));
    assert!(
        zlib.contains("compressed by zlib: `trace-cmd convert"),
        "{zlib}"
    );
    let ticks = trace_dat::check_clock("counter", false).unwrap_err();
    assert!(ticks.contains("`counter`"), "{ticks}");
    assert!(
        trace_dat::check_clock("x86-tsc", false).is_err()
            && trace_dat::check_clock("mono", false).is_ok()
    );
}

#[test]
fn few_packed_bytes_do_not_stand_for_very_many() {
    let mut bytes = file(FORMS[3]);
    let zstd = bytes.windows(4).position(|w| w == b"\x28\xb5\x2f\xfd");
    let length = zstd.unwrap() - 4;
    bytes[length..length + 4].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
    let refused = trace_dat::read("t.dat", bytes).unwrap_err().to_string();
    let wanted = "more than 67108864 bytes unpacked";
    assert!(refused.contains(wanted), "{refused}");
}

#[test]
fn the_same_pages_are_not_those_of_two_cpus() {
    let bytes = file(FORMS[0]);
    let at = |mark: &[u8]| bytes.windows(mark.len()).position(|w| w == mark).unwrap();
    let (options, places) = (at(b"options  \0"), at(b"flyrecord\0") + 10);
    // Pages of a second CPU, at the same place.
    let place = [
        (places as u64 + 32).to_le_bytes(),
        (PAGE as u64).to_le_bytes(),
    ]
    .concat();
    let mut twice = [&bytes[..places], &place, &place, &bytes[places + 16..]].concat();
    twice[options - 4] = 2;
    let refused = trace_dat::read("t.dat", twice).unwrap_err().to_string();
    let wanted = "the pages of CPU 1 at byte";
    assert!(refused.contains(wanted), "{refused}");
}
