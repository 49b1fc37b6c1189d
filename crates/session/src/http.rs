//! HTTP requests and answers of this program's services on loopback addresses.
//!
//! Input: the bytes that a client sent so far. Output: the request, or the answer to a request that is refused.

use std::net::SocketAddr;

use crate::serving::Refusal;

/// Maximum number of headers in a request; browsers send about twenty.
const MOST_HEADERS: usize = 64;

/// Request of the method GET or HEAD.
#[derive(Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// False if only the headers of the answer are wanted.
    pub body: bool,
    pub path: String,
    /// Text after the question mark, as sent; empty without one.
    pub query: String,
    /// Value of the header `Host`; `None` if it is missing, or not the only one.
    pub host: Option<String>,
}

impl HttpRequest {
    /// True if the host of the request is `address`, by number or as localhost. Another site may have a name for 127.0.0.1, so
    /// that its pages could read the answers otherwise.
    pub fn is_for(&self, address: SocketAddr) -> bool {
        let port = address.port();
        self.host
            .as_deref()
            .is_some_and(|host| host == address.to_string() || host == format!("localhost:{port}"))
    }
}

/// Parses a request. Returns `None` if it is incomplete, or the answer if it is refused. An incomplete request is refused if the
/// client has `ended`.
pub fn request(received: &[u8], ended: bool) -> Option<Result<HttpRequest, Vec<u8>>> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(received) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if !ended => return None,
        Err(httparse::Error::TooManyHeaders) => return Some(Err(refusal(Refusal::Long))),
        _ => return Some(Err(plain("400 Bad Request", "this is not an HTTP request"))),
    }
    let body = match request.method {
        Some("GET") => true,
        Some("HEAD") => false,
        _ => {
            let why = "GET and HEAD are served";
            return Some(Err(plain("405 Method Not Allowed", why)));
        }
    };
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut hosts = (request.headers.iter()).filter(|h| h.name.eq_ignore_ascii_case("host"));
    let host = match (hosts.next(), hosts.next()) {
        (Some(only), None) => std::str::from_utf8(only.value).ok().map(str::to_owned),
        _ => None,
    };
    Some(Ok(HttpRequest {
        body,
        path: path.to_owned(),
        query: query.to_owned(),
        host,
    }))
}

/// Returns the answer that refuses a connection.
pub fn refusal(why: Refusal) -> Vec<u8> {
    let status = match why {
        Refusal::Crowded => "503 Service Unavailable",
        Refusal::Slow => "408 Request Timeout",
        Refusal::Long => "431 Request Header Fields Too Large",
        Refusal::Failed => "500 Internal Server Error",
    };
    plain(status, why.why())
}

/// Returns an answer of one line of text.
pub fn plain(status: &str, text: &str) -> Vec<u8> {
    response(
        status,
        "text/plain; charset=utf-8",
        "",
        &format!("{text}\n"),
    )
}

/// Returns an answer. `headers` are further header lines, each with its line end.
pub(crate) fn response(status: &str, kind: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{headers}Connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_path_a_query_and_one_host() {
        let text = b"GET /a?b=c HTTP/1.1\r\nHOST: h:1\r\n\r\n";
        let expected = HttpRequest {
            body: true,
            path: "/a".into(),
            query: "b=c".into(),
            host: Some("h:1".into()),
        };
        assert_eq!(request(text, false), Some(Ok(expected)));
        assert_eq!(request(&text[..text.len() - 2], false), None);
        let two = b"HEAD / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n";
        let parsed = request(two, false).unwrap().unwrap();
        assert!(parsed.host.is_none() && !parsed.body);
    }
}
