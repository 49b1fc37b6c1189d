//! Exit codes, one per kind of error.
//!
//! Input: an error with its causes. Output: the kind of the outermost cause that has a kind, and all messages in one paragraph.

mod kinds;
#[cfg(test)]
mod tests;

pub use countersteer_lab::error::{FaultKind, failure};

/// Joins the messages of an error and its causes, separated by colons. Omits a message that the text contains already.
pub fn paragraph(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |mut text, cause| {
        let message = cause.to_string();
        if !text.contains(&message) {
            text = if text.is_empty() {
                message
            } else {
                format!("{text}: {message}")
            };
        }
        text
    })
}

/// Returns the kind of the outermost cause that has a kind. Errors without a kind are defects: [`FaultKind::Internal`].
pub fn kind_of(error: &anyhow::Error) -> FaultKind {
    error
        .chain()
        .find_map(kinds::of_cause)
        .unwrap_or(FaultKind::Internal)
}
