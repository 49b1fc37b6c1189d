//! Notices and signs of progress of a session, which the caller shows.
//!
//! A library does not write to stderr. Without a call of [`show_by`], notices are dropped.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Functions by which a program shows notices and progress.
#[derive(Clone, Copy)]
pub struct NoticeHooks {
    /// Shows one notice: a sentence without a newline.
    pub notice: fn(&fmt::Arguments<'_>),
    /// Begins to show that work is being done, labelled by the text, until the value is dropped.
    pub busy: fn(&str) -> Box<dyn Busy>,
    /// Begins to show how many of a number of steps are done, labelled by the text, until the value is dropped.
    pub bar: fn(&str, u64) -> Box<dyn Busy>,
}

/// Sign that work is being done; it disappears when the value is dropped.
pub trait Busy: Send + Sync {
    /// Shows that the work goes on.
    fn tick(&self);
    /// Replaces the text beside the label.
    fn set_message(&self, message: String);
    /// Shows that one more step is done.
    fn step(&self);
}

struct Hidden;

impl Busy for Hidden {
    fn tick(&self) {}
    fn set_message(&self, _: String) {}
    fn step(&self) {}
}

static SHOWN: OnceLock<NoticeHooks> = OnceLock::new();

/// Defines how this process shows notices and progress. Only the first call has an effect.
pub fn show_by(shown: NoticeHooks) {
    let _ = SHOWN.set(shown);
}

/// Number of [`QuietNotices`] that exist.
static QUIET: AtomicUsize = AtomicUsize::new(0);

/// Time during which this process shows no notices, because there would be many of the same.
pub struct QuietNotices(());

/// Begins a time without notices.
#[must_use]
pub fn quiet() -> QuietNotices {
    QUIET.fetch_add(1, Ordering::Relaxed);
    QuietNotices(())
}

impl Drop for QuietNotices {
    fn drop(&mut self) {
        QUIET.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Shows a notice; [`crate::say`] is shorter.
pub fn notice(text: &fmt::Arguments<'_>) {
    if QUIET.load(Ordering::Relaxed) > 0 {
        return;
    }
    if let Some(shown) = SHOWN.get() {
        (shown.notice)(text);
    }
}

/// Begins to show that work is being done.
#[must_use]
pub fn busy(label: &str) -> Box<dyn Busy> {
    SHOWN
        .get()
        .map_or_else(|| Box::new(Hidden) as Box<dyn Busy>, |s| (s.busy)(label))
}

/// Begins to show how many of `steps` are done.
#[must_use]
pub fn bar(label: &str, steps: u64) -> Box<dyn Busy> {
    SHOWN.get().map_or_else(
        || Box::new(Hidden) as Box<dyn Busy>,
        |s| (s.bar)(label, steps),
    )
}

/// Shows a notice, with the arguments of `format!`.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {
        $crate::notice::notice(&format_args!($($text)*))
    };
}
