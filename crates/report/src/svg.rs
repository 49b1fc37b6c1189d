//! Charts with axes, as SVG that uses the page's colours.
//!
//! Input: a [`Plot`] and its [`Mark`]s. Output: an `<svg>` element. `plotters` lays out axes, ticks and shapes. Its own SVG
//! backend writes fixed colours and no tooltips. This backend writes class names (`f3` fills, `l3` strokes with the third series
//! colour; see `html/style.css`) and a `<title>` in every mark.

use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt::Write;
use std::ops::Range;
use std::rc::Rc;

use countersteer_model::printable::printable;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
    FontTransform,
};

use crate::error::ReportError;

/// Colours of the page, and the SVG rules that use them. SVG files outside the page contain them, too.
pub(crate) const COLOURS: &str = include_str!("html/colours.css");

/// Number of backend units per SVG unit. plotters uses integer coordinates, and finer units make lines smooth.
const FINE: i32 = 8;
/// Font size of labels in SVG units.
const FONT: i32 = 11;
/// Explanation of timelines, shown if the page's script runs.
pub(crate) const HINT: &str = "Timelines share a cursor. Drag along one to see a part of the time, double-click for all of it.";

/// Margin above the area between the axes.
const ABOVE: u32 = 14;
/// Margin to the right of that area.
const RIGHT: u32 = 20;
/// Margin below that area, for the tick labels.
const BELOW: u32 = 20;

/// Returns the opening tag of a part of a chart that a zoom stretches horizontally. Coordinates are those of the chart.
pub(crate) fn pane((x, y): (u32, u32), (w, h): (u32, u32)) -> String {
    let place = format!("x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"");
    format!("<svg class=\"time\" {place} viewBox=\"{x} {y} {w} {h}\" preserveAspectRatio=\"none\">")
}

/// Purpose of a mark, which determines its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Ink,
    Grid,
    /// Reference mark, such as a size or a limit.
    Mark,
    /// Series of data, by index.
    Series(usize),
}

/// Number of series colours in the style sheet; later series repeat them in tints.
pub(crate) const SERIES: usize = 24;

impl Role {
    /// Encodes a role as a colour, because plotters passes only colours to the backend.
    fn colour(self) -> RGBColor {
        match self {
            Self::Ink => RGBColor(255, 0, 0),
            Self::Grid => RGBColor(255, 0, 1),
            Self::Mark => RGBColor(255, 0, 2),
            Self::Series(i) => RGBColor(255, 1, (i % SERIES) as u8),
        }
    }

    fn class(colour: BackendColor) -> String {
        match colour.rgb {
            (255, 1, series) => series.to_string(),
            (255, 0, 1) => "g".into(),
            (255, 0, 2) => "m".into(),
            _ => "i".into(),
        }
    }
}

/// Mark between the axes; `title` is its tooltip.
pub(crate) enum Mark {
    Line {
        points: Vec<(f64, f64)>,
        role: Role,
        title: String,
    },
    /// Area between two lines with the same abscissae, as points (x, lower y, upper y).
    Band {
        points: Vec<(f64, f64, f64)>,
        role: Role,
        title: String,
    },
    /// Vertical line with its label at the top. `side` is -1 for a label to the left, 0 for one above, 1 for one to the right.
    At {
        x: f64,
        label: String,
        title: String,
        side: i32,
    },
    /// Horizontal line with its label.
    Limit { y: f64, label: String },
}

pub(crate) struct Plot<'a> {
    pub(crate) name: &'static str,
    /// Label of the plot for screen readers.
    pub(crate) label: String,
    /// Width and height in SVG units, which are CSS pixels at full size.
    pub(crate) size: (u32, u32),
    /// Range of the abscissa.
    pub(crate) x: Range<f64>,
    /// Range of the ordinate.
    pub(crate) y: Range<f64>,
    /// Approximate numbers of ticks on the abscissa and the ordinate.
    pub(crate) ticks: (usize, usize),
    /// Width of the area for the labels of the ordinate.
    pub(crate) left: u32,
    /// True if the abscissa is time in seconds from zero on. Such charts of one experiment share a cursor and a zoom.
    pub(crate) timed: bool,
    /// Function that formats a tick label of the abscissa.
    pub(crate) x_text: &'a dyn Fn(&f64) -> String,
    /// Function that formats a tick label of the ordinate.
    pub(crate) y_text: &'a dyn Fn(&f64) -> String,
}

type Area = DrawingArea<Backend, Shift>;
type Chart<'a> = ChartContext<'a, Backend, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type SvgOutcome = Result<(), DrawingAreaErrorKind<Infallible>>;

impl Plot<'_> {
    /// Returns the plot with these marks as an `<svg>` element.
    pub(crate) fn draw(&self, marks: &[Mark]) -> Result<String, ReportError> {
        let page = Rc::new(RefCell::new(SvgPage::default()));
        let backend = Backend {
            size: self.size,
            axis: self.size.1 - BELOW,
            page: Rc::clone(&page),
        };
        let area = backend.into_drawing_area();
        self.draw_on(&area, &page, marks)
            .map_err(|e| ReportError::Draw {
                chart: self.name,
                why: e.to_string(),
            })?;
        drop(area);
        let (w, h) = self.size;
        let label = escaped(&self.label);
        let body = std::mem::take(&mut page.borrow_mut().body);
        let time = if self.timed {
            format!(" data-end=\"{}\"", self.x.end)
        } else {
            String::new()
        };
        Ok(format!(
            "<svg class=\"plot\" viewBox=\"0 0 {w} {h}\" role=\"img\" aria-label=\"{label}\"{time}>{body}</svg>"
        ))
    }

    fn draw_on(&self, area: &Area, page: &Rc<RefCell<SvgPage>>, marks: &[Mark]) -> SvgOutcome {
        let font = ("sans-serif", FONT * FINE);
        let mut chart = ChartBuilder::on(area)
            .margin_top(ABOVE as i32 * FINE)
            .margin_right(RIGHT as i32 * FINE)
            .x_label_area_size(BELOW as i32 * FINE)
            .y_label_area_size(self.left as i32 * FINE)
            .build_cartesian_2d(self.x.clone(), self.y.clone())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(self.ticks.0)
            .y_labels(self.ticks.1)
            .x_label_formatter(self.x_text)
            .y_label_formatter(self.y_text)
            .label_style(font.into_font().color(&Role::Ink.colour()))
            .axis_style(Role::Grid.colour())
            .bold_line_style(Role::Grid.colour())
            .light_line_style(TRANSPARENT)
            .set_all_tick_mark_size(3 * FINE)
            .draw()?;
        if self.timed {
            let (w, h) = (self.size.0 - self.left - RIGHT, self.size.1 - ABOVE - BELOW);
            page.borrow_mut().body += &pane((self.left, ABOVE), (w, h));
        }
        for mark in marks {
            self.mark(&mut chart, page, mark)?;
        }
        if self.timed {
            page.borrow_mut().body += "</svg>";
        }
        area.present()
    }

    fn mark(&self, chart: &mut Chart<'_>, page: &Rc<RefCell<SvgPage>>, mark: &Mark) -> SvgOutcome {
        let font = ("sans-serif", FONT * FINE);
        let text = |h| {
            font.into_font()
                .color(&Role::Mark.colour())
                .pos(plotters::style::text_anchor::Pos::new(h, VPos::Bottom))
        };
        let stroke =
            |role: Role, width: i32| Color::stroke_width(&role.colour(), (width * FINE) as u32);
        match mark {
            Mark::Line {
                points,
                role,
                title,
            } => {
                page.borrow_mut().title.clone_from(title);
                chart.draw_series([PathElement::new(points.clone(), stroke(*role, 2))])?;
            }
            Mark::Band {
                points,
                role,
                title,
            } => {
                page.borrow_mut().title.clone_from(title);
                let above = points.iter().map(|p| (p.0, p.2));
                let outline: Vec<_> = above
                    .chain(points.iter().rev().map(|p| (p.0, p.1)))
                    .collect();
                chart.draw_series([Polygon::new(outline, role.colour().filled())])?;
            }
            Mark::At {
                x,
                label,
                title,
                side,
            } => {
                page.borrow_mut().title.clone_from(title);
                let line = vec![(*x, self.y.start), (*x, self.y.end)];
                chart.draw_series([PathElement::new(line, stroke(Role::Mark, 1))])?;
                let anchor = match side.signum() {
                    -1 => HPos::Right,
                    0 => HPos::Center,
                    _ => HPos::Left,
                };
                chart.draw_series([Text::new(label.clone(), (*x, self.y.end), text(anchor))])?;
            }
            Mark::Limit { y, label } => {
                let line = vec![(self.x.start, *y), (self.x.end, *y)];
                chart.draw_series([PathElement::new(line, stroke(Role::Mark, 1))])?;
                chart.draw_series([Text::new(
                    label.clone(),
                    (self.x.end, *y),
                    text(HPos::Right),
                )])?;
            }
        }
        page.borrow_mut().title.clear();
        Ok(())
    }
}

/// Elements of the plot drawn so far.
#[derive(Default)]
struct SvgPage {
    body: String,
    /// Tooltip of the marks that are drawn next; empty without a tooltip.
    title: String,
}

struct Backend {
    size: (u32, u32),
    /// Vertical position below which text belongs to the ticks of the abscissa.
    axis: u32,
    page: Rc<RefCell<SvgPage>>,
}

type DrawnLabel = Result<(), DrawingErrorKind<Infallible>>;

fn at(v: i32) -> String {
    let text = format!("{:.1}", f64::from(v) / f64::from(FINE));
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

impl Backend {
    /// Adds an SVG element with the current tooltip. Attributes must contain no text that needs escaping.
    fn element(&self, name: &str, attributes: &str) -> DrawnLabel {
        let mut page = self.page.borrow_mut();
        let inside = if page.title.is_empty() {
            String::new()
        } else {
            format!("<title>{}</title>", escaped(&page.title))
        };
        // Writing to a string cannot fail.
        let _ = write!(page.body, "<{name} {attributes}>{inside}</{name}>");
        Ok(())
    }

    fn points(path: impl IntoIterator<Item = BackendCoord>) -> String {
        path.into_iter()
            .map(|(x, y)| format!("{},{}", at(x), at(y)))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

impl DrawingBackend for Backend {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        (self.size.0 * FINE as u32, self.size.1 * FINE as u32)
    }

    fn ensure_prepared(&mut self) -> DrawnLabel {
        Ok(())
    }

    fn present(&mut self) -> DrawnLabel {
        Ok(())
    }

    fn draw_pixel(&mut self, _: BackendCoord, _: BackendColor) -> DrawnLabel {
        Ok(())
    }

    fn draw_line<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
    ) -> DrawnLabel {
        self.draw_path([from, to], style)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        a: BackendCoord,
        b: BackendCoord,
        style: &S,
        fill: bool,
    ) -> DrawnLabel {
        let corners = [a, (b.0, a.1), b, (a.0, b.1)];
        if fill {
            self.fill_polygon(corners, style)
        } else {
            self.draw_path(corners, style)
        }
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> DrawnLabel {
        if style.color().alpha == 0.0 {
            return Ok(());
        }
        let class = Role::class(style.color());
        let points = Self::points(path);
        let width = if style.stroke_width() > FINE as u32 {
            " stroke-width=\"2\""
        } else {
            ""
        };
        self.element(
            "polyline",
            &format!("class=\"l{class}\"{width} points=\"{points}\""),
        )
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> DrawnLabel {
        let class = Role::class(style.color());
        let points = Self::points(path);
        self.element(
            "polygon",
            &format!("class=\"f{class}\" points=\"{points}\""),
        )
    }

    fn draw_text<T: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &T,
        pos: BackendCoord,
    ) -> DrawnLabel {
        let anchor = match style.anchor().h_pos {
            HPos::Left => "start",
            HPos::Center => "middle",
            HPos::Right => "end",
        };
        // Offset from the anchor to the baseline, relative to the font size, from half or full height of digits.
        let dy = match style.anchor().v_pos {
            VPos::Top => 0.8,
            VPos::Center => 0.35,
            VPos::Bottom => -0.25,
        };
        debug_assert!(
            matches!(style.transform(), FontTransform::None),
            "no turned text is asked for"
        );
        let class = Role::class(style.color());
        let tick = if pos.1 > self.axis as i32 * FINE {
            " tick"
        } else {
            ""
        };
        let x = at(pos.0);
        let y = at(pos.1);
        let mut page = self.page.borrow_mut();
        let text = escaped(text);
        let _ = write!(
            page.body,
            "<text class=\"t{class}{tick}\" x=\"{x}\" y=\"{y}\" dy=\"{dy}em\" text-anchor=\"{anchor}\">{text}</text>"
        );
        Ok(())
    }

    fn estimate_text_size<T: BackendTextStyle>(
        &self,
        text: &str,
        style: &T,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        let em = style.size();
        Ok(((em * 0.58 * text.chars().count() as f64) as u32, em as u32))
    }
}

/// Escapes text for the contents and attributes of elements.
pub(crate) fn escaped(text: &str) -> String {
    printable(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
