//! Key bindings of `steer top`. One table maps keys to actions and also supplies the help text.
//!
//! Input: a key, and the active mode. Output: the key's action; `None` if the key has none in this mode.

use countersteer_session::top::state::{Action, DisplayMode};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Number of lines that PgUp and PgDn move the selection, regardless of the terminal's height.
const PAGE: i32 = 20;
const FAR: i32 = 1 << 24;

/// A key of the table, the key's action, and its help text. A key without help text belongs to the last key before it that has
/// one.
pub struct Binding {
    key: KeyCode,
    action: Action,
    pub words: Option<(&'static str, &'static str)>,
}

const fn says(key: KeyCode, action: Action, keys: &'static str, does: &'static str) -> Binding {
    Binding {
        key,
        action,
        words: Some((keys, does)),
    }
}

const fn also(key: KeyCode, action: Action) -> Binding {
    Binding {
        key,
        action,
        words: None,
    }
}

use KeyCode::Char;

/// All keys that work in the table, in the order of the help.
pub static BINDINGS: &[Binding] = &[
    says(Char('q'), Action::Quit, "q", "quit"),
    says(
        KeyCode::Down,
        Action::Move(1),
        "arrows j k",
        "select a line",
    ),
    also(Char('j'), Action::Move(1)),
    also(KeyCode::Up, Action::Move(-1)),
    also(Char('k'), Action::Move(-1)),
    says(
        KeyCode::PageDown,
        Action::Move(PAGE),
        "PgUp PgDn Home End",
        "select further away",
    ),
    also(KeyCode::PageUp, Action::Move(-PAGE)),
    also(KeyCode::Home, Action::Move(-FAR)),
    also(KeyCode::End, Action::Move(FAR)),
    says(
        Char('s'),
        Action::Sort(1),
        "s S > <",
        "sort by the next or previous column",
    ),
    also(Char('S'), Action::Sort(-1)),
    also(Char('>'), Action::Sort(1)),
    also(Char('<'), Action::Sort(-1)),
    says(Char('r'), Action::Reverse, "r", "reverse the order"),
    says(
        Char('/'),
        Action::Enter(DisplayMode::Filter),
        "/",
        "filter by name (Enter keeps, Esc clears)",
    ),
    says(
        Char('c'),
        Action::Enter(DisplayMode::Columns(0)),
        "c",
        "pick columns (Space shows or hides)",
    ),
    says(
        Char(' '),
        Action::Pause,
        "Space",
        "pause; counting continues",
    ),
    says(
        Char('p'),
        Action::Processes,
        "p",
        "a line per thread or per process",
    ),
    says(Char('h'), Action::Enter(DisplayMode::Help), "h", "help"),
    also(Char('?'), Action::Enter(DisplayMode::Help)),
    also(KeyCode::Esc, Action::Cancel),
];

pub fn action(mode: DisplayMode, key: KeyEvent) -> Option<Action> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    if control {
        // The terminal is in raw mode, so Ctrl-C arrives as a key and not as a signal.
        return matches!(key.code, Char('c')).then_some(Action::Quit);
    }
    match mode {
        DisplayMode::Table => BINDINGS
            .iter()
            .find(|b| b.key == key.code)
            .map(|b| b.action),
        DisplayMode::Filter => match key.code {
            KeyCode::Enter => Some(Action::Leave),
            KeyCode::Esc => Some(Action::Cancel),
            KeyCode::Backspace => Some(Action::Erase),
            Char(c) => Some(Action::Type(c)),
            _ => None,
        },
        DisplayMode::Columns(_) => match key.code {
            Char(' ') | KeyCode::Enter => Some(Action::Toggle),
            Char('c' | 'q') | KeyCode::Esc => Some(Action::Leave),
            _ => BINDINGS
                .iter()
                .find(|b| b.key == key.code && matches!(b.action, Action::Move(_)))
                .map(|b| b.action),
        },
        DisplayMode::Help => Some(Action::Leave),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(mode: DisplayMode, code: KeyCode) -> Option<Action> {
        action(mode, KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn the_table_has_the_keys_of_its_help() {
        assert_eq!(of(DisplayMode::Table, Char('q')), Some(Action::Quit));
        assert_eq!(
            of(DisplayMode::Table, KeyCode::Down),
            of(DisplayMode::Table, Char('j'))
        );
        assert_eq!(of(DisplayMode::Table, Char('S')), Some(Action::Sort(-1)));
        assert_eq!(
            of(DisplayMode::Table, Char('/')),
            Some(Action::Enter(DisplayMode::Filter))
        );
        assert_eq!(of(DisplayMode::Table, Char('x')), None);
        let shifted = KeyEvent::new(Char('S'), KeyModifiers::SHIFT);
        assert_eq!(action(DisplayMode::Table, shifted), Some(Action::Sort(-1)));
    }

    #[test]
    fn no_key_is_bound_twice() {
        for (nth, binding) in BINDINGS.iter().enumerate() {
            assert!(
                !BINDINGS[..nth].iter().any(|b| b.key == binding.key),
                "{:?}",
                binding.key
            );
        }
    }

    #[test]
    fn a_filter_takes_letters_that_mean_something_elsewhere() {
        assert_eq!(of(DisplayMode::Filter, Char('q')), Some(Action::Type('q')));
        assert_eq!(
            of(DisplayMode::Filter, KeyCode::Backspace),
            Some(Action::Erase)
        );
        assert_eq!(of(DisplayMode::Filter, KeyCode::Esc), Some(Action::Cancel));
        assert_eq!(of(DisplayMode::Filter, KeyCode::Enter), Some(Action::Leave));
    }

    #[test]
    fn columns_are_moved_through_and_toggled() {
        assert_eq!(
            of(DisplayMode::Columns(0), Char('j')),
            Some(Action::Move(1))
        );
        assert_eq!(of(DisplayMode::Columns(0), Char(' ')), Some(Action::Toggle));
        assert_eq!(of(DisplayMode::Columns(0), Char('c')), Some(Action::Leave));
        assert_eq!(of(DisplayMode::Columns(0), Char('r')), None);
    }

    #[test]
    fn control_c_quits_everywhere() {
        for mode in [
            DisplayMode::Table,
            DisplayMode::Filter,
            DisplayMode::Columns(1),
            DisplayMode::Help,
        ] {
            assert_eq!(
                action(mode, KeyEvent::new(Char('c'), KeyModifiers::CONTROL)),
                Some(Action::Quit)
            );
        }
        assert_eq!(of(DisplayMode::Help, Char('x')), Some(Action::Leave));
    }
}
