//! Records and recordings that unpack to much more than they are.

use super::*;

#[test]
fn records_that_unpack_to_gigabytes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let record = record(dir.path());
    let spans = record.join("spans.parquet");
    let sound = fs::read(&spans).unwrap();
    let column = Arc::new(StringArray::from(vec!["x".repeat(1 << 27)])) as ArrayRef;
    let name = RecordBatch::try_from_iter([("name", column)]).unwrap();
    let column = Arc::new(arrow_array::UInt32Array::from(vec![0; 1 << 23])) as ArrayRef;
    let rows = RecordBatch::try_from_iter([("step", column)]).unwrap();
    for (batch, why) in [(name, "a page of 128 MB"), (rows, "8388608 rows in")] {
        countersteer_report::write_table(&spans, &batch).unwrap();
        for command in ["report run.rec -o out.html", "replay run.rec"] {
            let args: Vec<&str> = command.split(' ').collect();
            let said = refused(&args, dir.path());
            assert!(
                said.contains(why) && said.contains("spans.parquet"),
                "{said}"
            );
        }
    }
    fs::remove_file(&spans).unwrap();
    pipe(&spans);
    assert!(refused(&["replay", "run.rec"], dir.path()).contains("a named pipe"));
    fs::remove_file(&spans).unwrap();
    fs::write(&spans, sound).unwrap();
    let manifest = File::options()
        .write(true)
        .open(record.join("manifest.json"));
    manifest.unwrap().set_len(300 << 20).unwrap();
    assert!(refused(&["replay", "run.rec"], dir.path()).contains("manifest.json"));
}

#[test]
fn recordings_of_a_head_only_take_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let sparse = |name: &str, head: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, head).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(1 << 30).unwrap();
    };
    sparse("perf.data", b"PERFILE2");
    sparse("trace.dat", b"\x17\x08Dtracing6\0");
    sparse("rt-app.json", b"{ \"tasks\": {} }");
    // Empty packets: two bytes each, and far more in memory.
    fs::write(dir.path().join("perfetto"), b"\x0a\0".repeat(2 << 20)).unwrap();
    for (file, why) in [
        ("perf.data", "damaged perf.data"),
        ("trace.dat", "damaged trace.dat"),
        ("rt-app.json", "format rt-app may be (4194304 bytes)"),
        ("perfetto", "there is no `sched_switch`"),
    ] {
        let said = refused(&["workload", "import", file], dir.path());
        assert!(said.contains(why), "{said}");
    }
}
