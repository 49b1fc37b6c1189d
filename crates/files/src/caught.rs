//! Panics of libraries that read damaged files, as errors.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Returns the value of `work`, or the text of its panic, which is not printed.
///
/// # Errors
/// `work` panics. What it has changed by then is to be thrown away.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                usual(panic);
            }
        }));
    });
    let before = QUIET.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(before);
    outcome.map_err(|panic| text(&*panic))
}

/// The text of a panic.
pub(crate) fn text(panic: &(dyn Any + Send)) -> String {
    let fixed = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let made = || panic.downcast_ref::<String>().cloned();
    fixed.or_else(made).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_text() {
        let none: &[u8] = &[];
        let fallen = caught(|| none[3]);
        assert!(fallen.unwrap_err().contains("out of bounds"));
        assert_eq!(caught(|| 7), Ok(7));
        let nested = caught(|| caught(|| none[3]).is_err() && none[4] == 0);
        assert!(nested.unwrap_err().contains("index is 4"));
        assert!(!QUIET.get());
    }
}
