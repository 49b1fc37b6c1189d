//! Drawing of the state on a terminal: header, table, notes and keys, with the choice of columns or the help above them.
//!
//! Input: the state. Output: a frame. All colours come from [`Theme`]; `NO_COLOR` disables them.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as TextLine, Text};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table, TableState};

use super::input::BINDINGS;
use super::plain;
use countersteer_session::top::columns::{ColumnSource, TopColumn};
use countersteer_session::top::state::DisplayMode;
use countersteer_session::top::state::{TopLine, TopState};

/// Threshold: a thread with a higher CPU share is drawn as busy.
const BUSY: f64 = 0.8;

#[derive(Clone, Copy, Debug)]
pub struct Theme {
    colours: bool,
}

impl Theme {
    /// Returns the theme for this environment: without colours if `NO_COLOR` is set and not empty.
    pub fn of_environment() -> Self {
        Self {
            colours: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }

    fn colour(self, colour: Color) -> Style {
        if self.colours {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }
}

/// Drawing state that persists between frames: the theme, and the scroll position of the table.
pub struct TopView {
    theme: Theme,
    table: TableState,
}

impl TopView {
    pub fn new(theme: Theme) -> Self {
        Self {
            theme,
            table: TableState::default(),
        }
    }

    pub fn draw(&mut self, frame: &mut Frame<'_>, state: &TopState) {
        let notes = u16::try_from(state.notes.len()).unwrap_or(u16::MAX).min(3);
        let rows = [
            Constraint::Length(1),
            Constraint::Min(2),
            Constraint::Length(notes),
            Constraint::Length(1),
        ];
        let [head, body, below, keys] = Layout::vertical(rows).areas(frame.area());
        frame.render_widget(self.head(state), head);
        let left_out = self.table(frame, state, body);
        let last = state.notes.len().saturating_sub(usize::from(notes));
        let lines: Vec<TextLine<'_>> = state.notes[last..]
            .iter()
            .map(|n| TextLine::raw(n.as_str()))
            .collect();
        frame.render_widget(
            Paragraph::new(lines).style(self.theme.colour(Color::Yellow)),
            below,
        );
        frame.render_widget(foot(state, left_out), keys);
        match state.mode {
            DisplayMode::Columns(at) => self.columns(frame, state, at),
            DisplayMode::Help => help(frame),
            DisplayMode::Table | DisplayMode::Filter => {}
        }
    }

    fn head(&self, state: &TopState) -> Paragraph<'static> {
        let (threads, processes, cpus) = state.running();
        let paused = if state.paused { "  PAUSED" } else { "" };
        let filter = if state.filter.is_empty() {
            String::new()
        } else {
            format!("  name: {}", state.filter)
        };
        let at = state.at.as_secs_f64();
        let text = format!(
            "steer top  {at:.1} s  {threads} threads of {processes} processes ran on {cpus:.2} CPUs{filter}{paused}"
        );
        Paragraph::new(text).style(Style::new().add_modifier(Modifier::BOLD))
    }

    /// Draws the table; returns the number of columns that did not fit on the screen.
    fn table(&mut self, frame: &mut Frame<'_>, state: &TopState, area: Rect) -> usize {
        let shown: Vec<&TopColumn> = state.shown().collect();
        let columns = &shown[..fitting(&shown, area.width)];
        let sorted = state.columns.get(state.sort).map(|c| c.name.as_str());
        let head = columns.iter().map(|column| {
            let is_sorted = sorted == Some(column.name.as_str());
            let arrow = if is_sorted && state.descending {
                "▼"
            } else {
                "▲"
            };
            let name = if is_sorted {
                format!("{arrow}{}", column.name)
            } else {
                column.name.clone()
            };
            let style = if is_sorted {
                self.theme.colour(Color::Cyan)
            } else {
                Style::new()
            };
            Cell::from(aligned(name, column)).style(style)
        });
        let head =
            Row::new(head).style(Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED));
        let visible = state.visible();
        let rows = visible.iter().map(|line| self.row(state, columns, line));
        let widths = columns
            .iter()
            .map(|column| Constraint::Length(column.width));
        let selected = Style::new().add_modifier(Modifier::REVERSED);
        let table = Table::new(rows, widths)
            .header(head)
            .row_highlight_style(selected);
        self.table.select(state.selection(&visible));
        if self.table.selected().is_none() {
            *self.table.offset_mut() = 0;
        }
        frame.render_stateful_widget(table, area, &mut self.table);
        shown.len() - columns.len()
    }

    fn row(&self, state: &TopState, columns: &[&TopColumn], line: &TopLine) -> Row<'static> {
        let cells = columns.iter().map(|column| {
            let style = match column.source {
                ColumnSource::Share if line.share >= BUSY => self.theme.colour(Color::Yellow),
                ColumnSource::History => self.theme.colour(Color::Green),
                _ => Style::new(),
            };
            Cell::from(aligned(plain::value(state, column, line), column)).style(style)
        });
        let gone = line.idle > 0 || line.ended;
        let style = if gone {
            Style::new().add_modifier(Modifier::DIM)
        } else {
            Style::new()
        };
        Row::new(cells).style(style)
    }

    fn columns(&self, frame: &mut Frame<'_>, state: &TopState, at: usize) {
        let lines: Vec<TextLine<'_>> = (0..)
            .zip(&state.columns)
            .map(|(nth, column)| {
                let mark = if column.shown { 'x' } else { ' ' };
                let missing = column
                    .absent
                    .as_ref()
                    .map(|why| format!(" ({why})"))
                    .unwrap_or_default();
                let text = format!("[{mark}] {:<10} {}{missing}", column.name, column.prose);
                let style = if nth == at {
                    Style::new().add_modifier(Modifier::REVERSED)
                } else {
                    Style::new()
                };
                TextLine::styled(text, style)
            })
            .collect();
        popup(frame, "Columns: Space shows or hides, c closes", lines, at);
    }
}

fn aligned(text: String, column: &TopColumn) -> Text<'static> {
    let side = if column.is_text() {
        Alignment::Left
    } else {
        Alignment::Right
    };
    Text::from(text).alignment(side)
}

/// Returns the number of columns that fit in `width` characters, with one blank between columns.
fn fitting(columns: &[&TopColumn], width: u16) -> usize {
    let mut left = u32::from(width) + 1;
    let fits = |column: &&&TopColumn| {
        let needed = u32::from(column.width) + 1;
        let fits = needed <= left;
        left = left.saturating_sub(needed);
        fits
    };
    columns.iter().take_while(fits).count()
}

fn foot(state: &TopState, left_out: usize) -> Paragraph<'static> {
    let text = match state.mode {
        DisplayMode::Filter => format!("name contains: {}_", state.filter),
        DisplayMode::Help => "any key closes".into(),
        DisplayMode::Table | DisplayMode::Columns(_) => {
            // This text is first, because the end of the line is cut off on narrow terminals.
            let more = if left_out > 0 {
                format!("{left_out} columns do not fit: ")
            } else {
                String::new()
            };
            format!(
                "{more}q quit  s sort  r reverse  / filter  c columns  p processes  Space pause  h help"
            )
        }
    };
    Paragraph::new(text).style(Style::new().add_modifier(Modifier::DIM))
}

fn help(frame: &mut Frame<'_>) {
    let line = |(keys, does): (&str, &str)| TextLine::raw(format!("{keys:<20} {does}"));
    let mut lines: Vec<TextLine<'_>> = BINDINGS.iter().filter_map(|b| b.words).map(line).collect();
    lines.push(TextLine::raw(""));
    lines.push(TextLine::raw(
        "Grey lines did not run in the last interval, or have ended.",
    ));
    lines.push(TextLine::raw(
        "A dash: not counted on this machine; c shows the reason.",
    ));
    lines.push(TextLine::raw(
        "Output of a program started here goes to /dev/null, or to --stdout FILE.",
    ));
    popup(frame, "Keys", lines, 0);
}

/// Draws a centred box with a title, scrolled so that line `seen` is visible.
fn popup(frame: &mut Frame<'_>, title: &str, lines: Vec<TextLine<'_>>, seen: usize) {
    let area = frame.area();
    let widest = lines
        .iter()
        .map(TextLine::width)
        .max()
        .unwrap_or(0)
        .max(title.len());
    let width = u16::try_from(widest + 4)
        .unwrap_or(u16::MAX)
        .min(area.width);
    let height = u16::try_from(lines.len() + 2)
        .unwrap_or(u16::MAX)
        .min(area.height);
    let place = Rect {
        x: (area.width - width) / 2,
        y: (area.height - height) / 2,
        width,
        height,
    };
    let inside = usize::from(height.saturating_sub(2)).max(1);
    let scroll = u16::try_from((seen + 1).saturating_sub(inside)).unwrap_or(u16::MAX);
    frame.render_widget(Clear, place);
    let block = Block::bordered().title(format!(" {title} "));
    frame.render_widget(
        Paragraph::new(lines).block(block).scroll((scroll, 0)),
        place,
    );
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Buffer;

    use super::*;
    use countersteer_session::top::state::Action;
    use countersteer_session::top::testing::{measured, snapshot, state};

    fn drawn(state: &TopState, width: u16, colours: bool) -> (String, Buffer) {
        let mut terminal = Terminal::new(TestBackend::new(width, 24)).unwrap();
        let mut view = TopView::new(Theme { colours });
        terminal.draw(|frame| view.draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let row = |y| {
            (0..width)
                .map(|x| buffer[(x, y)].symbol())
                .collect::<String>()
                .trim_end()
                .to_owned()
        };
        let text: Vec<String> = (0..24).map(row).collect();
        (text.join("\n"), buffer)
    }

    fn two() -> TopState {
        let mut state = state();
        state.ingest(snapshot(
            0,
            vec![
                measured(1, 10, "one", 0.5, 2.0),
                measured(2, 20, "two", 0.95, 40_000.0),
            ],
        ));
        state.ingest(snapshot(1, vec![measured(2, 20, "two", 0.9, 40_000.0)]));
        state
    }

    fn line<'a>(text: &'a str, with: &str) -> &'a str {
        text.lines().find(|l| l.contains(with)).unwrap_or_default()
    }

    #[test]
    fn a_frame_has_head_table_notes_and_keys() {
        let mut state = two();
        state.notes.push("3 processes could not be attached".into());
        let (text, buffer) = drawn(&state, 120, true);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "steer top  2.0 s  1 threads of 1 processes ran on 0.90 CPUs"
        );
        assert!(
            lines[1].contains("▼cpu%") && lines[1].contains("llc_mpki"),
            "{text}"
        );
        assert!(
            line(&text, "two").contains("90.0      -        -   40.0k"),
            "{text}"
        );
        assert!(
            line(&text, "two").contains("██") || line(&text, "two").contains("▇"),
            "{text}"
        );
        assert_eq!(lines[22], "3 processes could not be attached");
        assert!(lines[23].starts_with("q quit"));
        assert!(
            buffer[(0, 3)].modifier.contains(Modifier::DIM),
            "who is idle is grey"
        );
        assert!(!buffer[(0, 2)].modifier.contains(Modifier::DIM));
    }

    #[test]
    fn a_machine_of_1024_cpus_is_shown_in_time() {
        const CPUS: u32 = 1024;
        const THREADS: u32 = 20_000;
        let busy = |number: u64| {
            let thread = |tid: u32| {
                let share = if tid <= CPUS { 1.0 } else { 0.001 };
                let mut thread = measured(tid / 16 + 1, tid, "worker", share, f64::from(tid));
                thread.cpu = Some((tid - 1) % CPUS);
                thread
            };
            snapshot(number, (1..=THREADS).map(thread).collect())
        };
        let mut state = state();
        let started = std::time::Instant::now();
        for number in 0..3 {
            state.ingest(busy(number));
        }
        let (text, _) = drawn(&state, 80, false);
        let took = started.elapsed();
        let head = text.lines().next().unwrap();
        assert!(
            head.contains("20000 threads of 1251 processes ran on 1042.98 CPUs"),
            "{head}"
        );
        assert!(text.lines().all(|l| l.chars().count() <= 80));
        println!("three intervals of {THREADS} threads on {CPUS} CPUs: {took:?}");
        assert!(took.as_secs() < 30, "an interval is a second: {took:?}");
    }

    #[test]
    fn no_colour_is_no_colour() {
        let is_coloured = |buffer: &Buffer| {
            buffer
                .content()
                .iter()
                .any(|c| c.fg != Color::Reset || c.bg != Color::Reset)
        };
        assert!(is_coloured(&drawn(&two(), 120, true).1));
        assert!(!is_coloured(&drawn(&two(), 120, false).1));
    }

    #[test]
    fn the_selected_line_is_reversed() {
        let mut state = two();
        state.apply(Action::Move(1));
        let (_, buffer) = drawn(&state, 120, false);
        assert!(buffer[(5, 2)].modifier.contains(Modifier::REVERSED));
        assert!(!buffer[(5, 3)].modifier.contains(Modifier::REVERSED));
    }

    #[test]
    fn narrow_terminals_leave_columns_out_and_say_so() {
        let (text, _) = drawn(&two(), 100, false);
        assert!(
            text.contains("1 columns do not fit") && !text.contains("clock_share"),
            "{text}"
        );
        drawn(&two(), 3, false);
    }

    #[test]
    fn popups_list_columns_and_keys() {
        let mut state = two();
        state.apply(Action::Enter(DisplayMode::Columns(0)));
        let (text, _) = drawn(&state, 120, false);
        assert!(
            text.contains("[x] ipc")
                && text.contains("(not counted here)")
                && text.contains("[ ] migr/s"),
            "{text}"
        );
        state.apply(Action::Leave);
        state.apply(Action::Enter(DisplayMode::Help));
        let (text, _) = drawn(&state, 120, false);
        assert!(
            text.contains("sort by the next or previous column") && text.contains("/dev/null"),
            "{text}"
        );
        state.apply(Action::Leave);
        state.apply(Action::Enter(DisplayMode::Filter));
        state.apply(Action::Type('o'));
        assert!(drawn(&state, 120, false).0.contains("name contains: o_"));
    }
}
