//! Progress bars, shown on stderr if it is a terminal.

use countersteer_model::printable::printable_lines;
use countersteer_session::notice::{Busy, NoticeHooks};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Creates a progress bar of `len` steps, labelled `what`.
pub fn bar(len: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::stderr_with_hz(10));
    let template = "{msg:24} [{bar:40}] {pos}/{len} {elapsed} (about {eta} left)";
    bar.set_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.set_message(what.to_owned());
    bar
}

/// Creates a spinner, labelled `what`, for an operation of unknown length.
pub fn spinner(what: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.set_message(what.to_owned());
    bar
}

/// Shows notices and spinners of sessions on stderr.
pub const SHOWN: NoticeHooks = NoticeHooks {
    notice: |text| log(&text.to_string()),
    busy: |label| Box::new(ProgressLine(spinner(label))),
    bar: |label, steps| Box::new(ProgressLine(bar(steps, label))),
};

/// Prints a message to stderr.
pub fn log(text: &str) {
    stderr_line!("steer: {}", printable_lines(text));
}

struct ProgressLine(ProgressBar);

impl Busy for ProgressLine {
    fn tick(&self) {
        self.0.tick();
    }

    fn set_message(&self, message: String) {
        self.0.set_message(message);
    }

    fn step(&self) {
        self.0.inc(1);
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
