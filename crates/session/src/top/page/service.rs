//! Answers to the browser.
//!
//! Neither other users nor pages of other sites may read this page. Its address contains a random word. Requests must name this
//! address as their host, because another site may have a name for 127.0.0.1. The answers allow only their own scripts and styles.

use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use countersteer_report::html::live::{self, RecordedSession, WatchedHost};

use super::history::HostHistory;
use super::locked;
use crate::http::{self, response};
use crate::serving::{Refusal, Service};

/// Header lines of every answer.
const HEADERS: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                       base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
                       X-Content-Type-Options: nosniff\r\n\
                       Referrer-Policy: no-referrer\r\n\
                       Cross-Origin-Resource-Policy: same-origin\r\n\
                       Cross-Origin-Opener-Policy: same-origin\r\n\
                       Cache-Control: no-store\r\n";
const HTML: &str = "text/html; charset=utf-8";

/// Longest time that can be chosen, in s.
const LONGEST_S: f64 = 1e9;

/// Contents of the page.
pub(crate) enum PageContents {
    Live(Vec<Arc<Mutex<HostHistory>>>),
    /// Records with their names.
    Recorded(Vec<(String, RecordedSession)>),
}

/// Service of the page.
pub(crate) struct PageService {
    address: SocketAddr,
    token: String,
    shown: PageContents,
    period: Duration,
}

impl PageService {
    pub fn new(address: SocketAddr, shown: PageContents, period: Duration) -> anyhow::Result<Self> {
        let mut random = [0; 16];
        let source = "/dev/urandom";
        File::open(source)
            .and_then(|mut file| file.read_exact(&mut random))
            .with_context(|| format!("cannot read {source}"))?;
        Ok(Self {
            address,
            token: random.iter().map(|byte| format!("{byte:02x}")).collect(),
            shown,
            period,
        })
    }

    pub fn url(&self) -> String {
        format!("http://{}/{}/", self.address, self.token)
    }

    fn serve(&self, request: &http::HttpRequest) -> Vec<u8> {
        if !request.is_for(self.address) {
            return forbidden("this host is not the address that steer printed");
        }
        let path = request.path.strip_prefix('/').unwrap_or_default();
        let (token, file) = path.split_once('/').unwrap_or((path, ""));
        if !is_same(token, &self.token) {
            return forbidden("open the whole address that steer printed");
        }
        let (kind, text) = match file {
            "" => (HTML, live::page("steer top", self.period, self.length())),
            "style.css" => ("text/css; charset=utf-8", live::style()),
            "live.js" => ("text/javascript; charset=utf-8", live::SCRIPT.to_owned()),
            "panels" => match self.panels(&request.query) {
                Ok(panels) => (HTML, panels),
                Err(why) => return secured("500 Internal Server Error", &why.to_string()),
            },
            _ => return secured("404 Not Found", "there is no such file"),
        };
        response(
            "200 OK",
            kind,
            HEADERS,
            if request.body { &text } else { "" },
        )
    }

    /// Length in s of the longest record; `None` if the page is live.
    fn length(&self) -> Option<f64> {
        match &self.shown {
            PageContents::Live(_) => None,
            PageContents::Recorded(all) => {
                Some(all.iter().map(|(_, r)| r.end_s).fold(0.0, f64::max))
            }
        }
    }

    fn panels(&self, query: &str) -> anyhow::Result<String> {
        let mut choice = ReaderChoice::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "threads" => choice.threads = value.into_owned(),
                "measures" => choice.measures = value.into_owned(),
                // A value that is no number means all times.
                "span" => choice.span = value.parse().ok().filter(|s| *s > 0.0 && *s <= LONGEST_S),
                "at" => choice.at = value.parse().ok().filter(|s: &f64| s.is_finite()),
                _ => {}
            }
        }
        let (threads, measures) = (words(&choice.threads), words(&choice.measures));
        let draw = |hosts: &[WatchedHost<'_>]| Ok(live::side_by_side(hosts, &threads, &measures)?);
        match &self.shown {
            PageContents::Live(histories) => {
                let copied = |history: &Arc<Mutex<HostHistory>>| {
                    let mut history = locked(history);
                    let drawn = history.drawn();
                    (
                        history.name.clone(),
                        history.note.clone(),
                        history.at(),
                        drawn,
                    )
                };
                // Counting goes on while the copies are drawn.
                let copies: Vec<_> = histories.iter().map(copied).collect();
                let hosts: Vec<WatchedHost<'_>> = copies
                    .iter()
                    .map(|(name, note, at, (owners, measures))| WatchedHost {
                        name,
                        note: if note.is_empty() && *at <= 0.0 {
                            "waits for the first interval"
                        } else {
                            note
                        },
                        measures,
                        owners,
                        span: choice.span(*at, *at),
                    })
                    .collect();
                draw(&hosts)
            }
            PageContents::Recorded(records) => {
                let cut: Vec<_> = records.iter().map(|(_, r)| choice.until(r)).collect();
                let hosts: Vec<WatchedHost<'_>> = (records.iter().zip(&cut))
                    .map(|((name, recorded), measures)| WatchedHost {
                        name,
                        note: "",
                        measures,
                        owners: &recorded.owners,
                        span: choice.span(
                            choice.at.unwrap_or(recorded.end_s).min(recorded.end_s),
                            recorded.end_s,
                        ),
                    })
                    .collect();
                draw(&hosts)
            }
        }
    }
}

/// Choices of the reader.
#[derive(Default)]
struct ReaderChoice {
    threads: String,
    measures: String,
    /// Length in s of the shown time; `None` for all of it.
    span: Option<f64>,
    /// Position in s within records; `None` for their end.
    at: Option<f64>,
}

impl ReaderChoice {
    /// Returns the times to show, the last of which is `at`, or all until `end`.
    fn span(&self, at: f64, end: f64) -> std::ops::Range<f64> {
        match self.span {
            Some(span) => (at - span).max(0.0)..at.max(span),
            None => 0.0..end.max(f64::MIN_POSITIVE),
        }
    }

    /// Returns the measures of a record until the position.
    fn until(
        &self,
        recorded: &RecordedSession,
    ) -> Vec<countersteer_report::counted::CountedMeasure> {
        let mut measures = recorded.measures.clone();
        if let Some(at) = self.at {
            let lines = measures.iter_mut().flat_map(|m| &mut m.lines);
            lines.for_each(|line| line.points.retain(|p| p.at_ns as f64 <= at * 1e9));
        }
        measures
    }
}

fn words(text: &str) -> Vec<&str> {
    let words = text.split(',').map(str::trim);
    words.filter(|word| !word.is_empty()).collect()
}

/// Compares two texts in a time that depends on their lengths only, so that it does not reveal a common start.
fn is_same(a: &str, b: &str) -> bool {
    let differences = a
        .bytes()
        .zip(b.bytes())
        .fold(0, |all, (a, b)| black_box(all | (a ^ b)));
    a.len() == b.len() && differences == 0
}

fn forbidden(why: &str) -> Vec<u8> {
    secured("403 Forbidden", why)
}

fn secured(status: &str, text: &str) -> Vec<u8> {
    response(
        status,
        "text/plain; charset=utf-8",
        HEADERS,
        &format!("{text}\n"),
    )
}

impl Service for PageService {
    fn answer(&mut self, received: &[u8], ended: bool) -> Option<Vec<u8>> {
        Some(match http::request(received, ended)? {
            Ok(request) => self.serve(&request),
            Err(answer) => answer,
        })
    }

    fn refuse(&mut self, why: Refusal) -> Vec<u8> {
        http::refusal(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> PageService {
        let mut history = HostHistory::new("<host>".into(), 1.0);
        history
            .add(r#"{"time_s":1,"pid":1,"tid":2,"name":"t","columns":{"cpu%":50.0}}"#)
            .unwrap();
        let shown = PageContents::Live(vec![Arc::new(Mutex::new(history))]);
        PageService::new(([127, 0, 0, 1], 4000).into(), shown, Duration::from_secs(1)).unwrap()
    }

    fn asked(page: &mut PageService, path: &str, host: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\n{host}\r\n\r\n");
        String::from_utf8(page.answer(request.as_bytes(), false).unwrap()).unwrap()
    }

    #[test]
    fn only_the_whole_address_is_served() {
        let mut page = page();
        let token = page.token.clone();
        let own = "Host: 127.0.0.1:4000";
        for file in [
            "",
            "style.css",
            "live.js",
            "panels?span=60&threads=t%2C%20x",
        ] {
            let answer = asked(&mut page, &format!("/{token}/{file}"), own);
            assert!(
                answer.starts_with("HTTP/1.1 200 OK\r\n"),
                "{file}: {answer}"
            );
            assert!(
                answer.contains("Content-Security-Policy: default-src 'none';"),
                "{answer}"
            );
        }
        let (short, wrong) = (&token[1..], token.replace(|_: char| true, "0"));
        for path in [
            "/".into(),
            format!("/{short}/"),
            format!("/{wrong}/"),
            format!("/{token}0/"),
            "http://127.0.0.1:4000/".into(),
        ] {
            let answer = asked(&mut page, &path, own);
            assert!(answer.starts_with("HTTP/1.1 403 "), "{path}: {answer}");
        }
        for host in [
            "Host: evil.example:4000",
            "Host: 127.0.0.1",
            "Accept: */*",
            "Host: 127.0.0.1:4000\r\nHost: 127.0.0.1:4000",
        ] {
            let answer = asked(&mut page, &format!("/{token}/"), host);
            assert!(answer.starts_with("HTTP/1.1 403 "), "{host}: {answer}");
        }
        assert!(asked(&mut page, &format!("/{token}/x"), own).starts_with("HTTP/1.1 404 "));
        assert!(
            asked(&mut page, &format!("/{token}/"), "Host: localhost:4000").contains(" 200 OK")
        );
        assert_ne!(token, self::page().token);
    }

    #[test]
    fn panels_have_the_hosts_values_and_no_markup_of_theirs() {
        let mut page = page();
        let path = format!("/{}/panels?span=60", page.token);
        let answer = asked(&mut page, &path, "Host: 127.0.0.1:4000");
        assert!(
            answer.contains("&lt;host&gt;") && !answer.contains("<host>"),
            "{answer}"
        );
        assert!(
            answer.contains("<h4>cpu%</h4>") && answer.contains("t (2)"),
            "{answer}"
        );
        // Curious values are no reason to fail.
        for query in [
            "span=x",
            "span=-1",
            "span=1e999",
            "at=nan",
            "span",
            "%",
            "threads=%ff",
        ] {
            let path = format!("/{}/panels?{query}", page.token);
            let answer = asked(&mut page, &path, "Host: 127.0.0.1:4000");
            assert!(answer.starts_with("HTTP/1.1 200 "), "{query}: {answer}");
        }
    }
}
