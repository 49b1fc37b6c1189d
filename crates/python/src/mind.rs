//! Thread on which a policy in Python decides.
//!
//! Input: questions. Output: answers, or the reason for which there is none. A thread of its own can be abandoned. If it does
//! not answer in time, it gets an exception, its position in the code is reported, and the run continues without it. Code that
//! never releases the interpreter's lock cannot be abandoned; on real threads the policy supervisor then ends the run.

use std::os::raw::c_ulong;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use countersteer_model::engine::ThreadInfo;
use countersteer_model::policy::View;
use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// Interval at which a thread that waits for an answer checks for interrupts.
const LOOK: Duration = Duration::from_millis(100);

/// Places by row, and the reason.
pub type Answer = (Vec<i64>, String);

/// Reason for which there is no answer.
pub enum Failure {
    /// The policy raised an exception; this is the traceback.
    Raised(String),
    /// The user pressed Ctrl-C.
    Interrupted(PyErr),
}

/// Columns of bytes by name.
type Columns = Vec<(&'static str, Vec<u8>)>;

/// Values about threads, a row each.
pub struct Question {
    now_s: f64,
    rows: usize,
    columns: Columns,
    metrics: Columns,
    programs: Vec<(u32, String)>,
}

impl Question {
    pub fn new(view: &View<'_>, metrics: &[&'static str]) -> Self {
        let ints = |of: &dyn Fn(&ThreadInfo) -> i64| -> Vec<u8> {
            let values = view.threads.iter().map(of);
            values.flat_map(i64::to_ne_bytes).collect()
        };
        let core_type = |t: &ThreadInfo| i64::from(view.topology.core_type_of(t.cpu).0);
        let metric = |name: &&'static str| {
            let column = view.metrics.column(name);
            let value = |t: &ThreadInfo| view.metrics.at(t.id, column?);
            let values = view.threads.iter().map(|t| value(t).unwrap_or(f64::NAN));
            (*name, values.flat_map(f64::to_ne_bytes).collect())
        };
        let programs = view.programs.iter();
        Self {
            now_s: view.now.as_secs_f64(),
            rows: view.threads.len(),
            columns: vec![
                ("thread", ints(&|t| i64::from(t.id.0))),
                ("program", ints(&|t| i64::from(t.program.0))),
                ("cpu", ints(&|t| i64::from(t.cpu.0))),
                ("runnable", ints(&|t| i64::from(t.runnable))),
                ("nice", ints(&|t| i64::from(t.nice))),
                ("core_type", ints(&core_type)),
            ],
            metrics: metrics.iter().map(metric).collect(),
            programs: programs.map(|p| (p.id.0, p.name.to_string())).collect(),
        }
    }

    fn put(self, py: Python<'_>, object: &Py<PyAny>) -> PyResult<Answer> {
        let dict = |columns: Columns| {
            let dict = PyDict::new(py);
            for (name, bytes) in columns {
                dict.set_item(name, PyBytes::new(py, &bytes))?;
            }
            PyResult::Ok(dict)
        };
        let asked = (
            self.now_s,
            self.rows,
            dict(self.columns)?,
            dict(self.metrics)?,
            self.programs,
        );
        object.call_method1(py, "_decide", asked)?.extract(py)
    }
}

/// Channels to a thread that decides.
struct Lines {
    questions: SyncSender<Question>,
    answers: Receiver<Result<Answer, String>>,
    /// Identifier of the thread in the interpreter; received at its first question.
    ident: Receiver<c_ulong>,
}

/// Python object, and the thread on which it is called.
pub struct Mind {
    object: Option<Py<PyAny>>,
    limit: Duration,
    lines: Option<Lines>,
    ident: Option<c_ulong>,
}

impl Mind {
    /// Takes the object; no thread is started before the first question.
    pub fn new(object: Py<PyAny>, limit: Duration) -> Self {
        Self {
            object: Some(object),
            limit,
            lines: None,
            ident: None,
        }
    }

    /// Asks, and waits for the answer up to the limit. The caller must not hold the interpreter's lock.
    pub fn ask(&mut self, question: Question) -> Result<Answer, Failure> {
        let object = self.object.take();
        let lines = self.lines.get_or_insert_with(|| start(object));
        let gone = || Failure::Raised("the thread that decides has ended".into());
        lines.questions.send(question).map_err(|_| gone())?;
        let begun = Instant::now();
        let answer = loop {
            self.ident = self.ident.or_else(|| lines.ident.try_recv().ok());
            match lines.answers.recv_timeout(LOOK.min(self.limit)) {
                Ok(answer) => break answer.map_err(Failure::Raised),
                Err(RecvTimeoutError::Disconnected) => break Err(gone()),
                Err(RecvTimeoutError::Timeout) if begun.elapsed() >= self.limit => {
                    let where_ = leave(self.ident);
                    let limit = self.limit.as_secs_f64();
                    let why = format!("{where_}TimeoutError: no decision within {limit} s");
                    break Err(Failure::Raised(why));
                }
                Err(RecvTimeoutError::Timeout) => interrupted(self.ident)?,
            }
        };
        interrupted(self.ident)?;
        answer
    }
}

/// Fails if Ctrl-C was pressed, as far as this is the interpreter's main thread.
fn interrupted(ident: Option<c_ulong>) -> Result<(), Failure> {
    Python::attach(|py| {
        py.check_signals().map_err(|error| {
            raise(py, ident);
            Failure::Interrupted(error)
        })
    })
}

fn start(object: Option<Py<PyAny>>) -> Lines {
    let (questions, asked) = sync_channel::<Question>(1);
    let (tell, answers) = sync_channel(1);
    let (introduce, ident) = sync_channel(1);
    // The lock is released while the thread waits, and a channel may only be shared across that behind a lock of its own.
    let asked = Mutex::new(asked);
    thread::spawn(move || {
        Python::attach(|py| {
            let Some(object) = object else { return };
            let ident = py
                .import("threading")
                .and_then(|threading| threading.call_method0("get_ident")?.extract::<c_ulong>());
            if let Ok(ident) = ident {
                let _ = introduce.send(ident);
            }
            let next = || asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
            while let Ok(question) = py.detach(next) {
                let answer = question.put(py, &object);
                let answer = answer.map_err(|error| traceback(py, &error));
                if py.detach(|| tell.send(answer)).is_err() {
                    return;
                }
            }
        });
    });
    Lines {
        questions,
        answers,
        ident,
    }
}

/// Abandons a thread that does not answer; returns its position in the code.
fn leave(ident: Option<c_ulong>) -> String {
    Python::attach(|py| {
        let stack = || -> PyResult<String> {
            let frames = py.import("sys")?.call_method0("_current_frames")?;
            let frame = frames.get_item(ident)?;
            let lines = py
                .import("traceback")?
                .call_method1("format_stack", (frame,))?;
            Ok(lines.extract::<Vec<String>>()?.concat())
        };
        let stack = stack().unwrap_or_default();
        raise(py, ident);
        format!("Traceback (most recent call last):\n{stack}")
    })
}

/// Makes a thread raise an exception as soon as it executes Python code.
fn raise(py: Python<'_>, ident: Option<c_ulong>) {
    if let Some(ident) = ident {
        let kind = py.get_type::<PyTimeoutError>();
        // SAFETY: the lock is held, and the exception's type lives; a thread that has ended is not found.
        unsafe { pyo3::ffi::PyThreadState_SetAsyncExc(ident as _, kind.as_ptr()) };
    }
}

/// Exception as the interpreter would print it.
pub fn traceback(py: Python<'_>, error: &PyErr) -> String {
    let traceback = error.traceback(py).and_then(|t| t.format().ok());
    format!("{}{error}", traceback.unwrap_or_default())
}
