//! Malicious clients on both listeners.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream as Unix;
use std::path::Path;
use std::sync::Arc;

use countersteer_model::topology::Topology;
use serde_json::json;

use super::*;
use crate::steering::supervisor::RunControl;
use crate::steering::{exposition, socket};

/// Sends a request and returns the answer.
fn asked<S: Read + Write>(mut stream: S, text: &[u8]) -> String {
    // A refusal may come before the whole request was sent.
    let _ = stream.write_all(text);
    heard(stream)
}

fn heard(mut stream: impl Read) -> String {
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

struct Served {
    metrics: SocketAddr,
    socket: std::path::PathBuf,
    _server: Server,
    _file: socket::SocketFile,
}

impl Served {
    fn at(folder: &Path, limits: ConnectionLimits) -> Self {
        let (machine, _) = countersteer_lab::library::machine("i9-12900k-8p8e").unwrap();
        let control = RunControl::default();
        let metrics = exposition::door((Ipv4Addr::LOCALHOST, 0).into(), &control).unwrap();
        let Listener::Tcp(listener) = &metrics.listener else {
            unreachable!("figures are served over TCP");
        };
        let address = listener.local_addr().unwrap();
        let path = folder.join("run-1.sock");
        let topology = Arc::new(Topology::new(&machine));
        let (requests, file) = socket::door(&path, &topology, &control).unwrap();
        let doors = [metrics, requests].map(|door| Door { limits, ..door });
        Self {
            metrics: address,
            socket: path,
            _server: Server::start(doors.into()).unwrap(),
            _file: file,
        }
    }

    fn http(&self) -> std::net::TcpStream {
        std::net::TcpStream::connect(self.metrics).unwrap()
    }

    /// Request of the metrics, to the service's own address.
    fn get(&self) -> Vec<u8> {
        format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", self.metrics).into_bytes()
    }

    fn control(&self) -> Unix {
        Unix::connect(&self.socket).unwrap()
    }
}

/// Time limit that no test reaches.
const LONG: Duration = Duration::from_secs(600);

#[test]
fn idle_connections_keep_nobody_out_and_are_asked_to_go() {
    let folder = tempfile::tempdir().unwrap();
    let limits = ConnectionLimits {
        connections: 4,
        time: LONG,
        ..LIMITS
    };
    let served = Served::at(folder.path(), limits);
    let idle: Vec<_> = (0..40).map(|_| (served.http(), served.control())).collect();
    assert!(asked(served.http(), &served.get()).contains("\ncountersteer_decisions_total 0.0\n"));
    let status = socket::ask(&served.socket, &json!({ "ask": "get" })).unwrap();
    assert_eq!(status["paused"], json!(false));
    for (http, control) in idle.iter().take(30) {
        assert!(heard(http).starts_with("HTTP/1.1 503 "));
        assert!(heard(control).contains("too many connections"));
    }
    // An accepted client is still answered.
    let (http, control) = &idle[39];
    assert!(asked(http, &served.get()).starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(asked(control, b"{\"ask\": \"status\"}\n").contains("\"policy\":"));
}

#[test]
fn a_client_that_takes_too_long_is_answered_so_and_a_byte_now_and_then_is_no_help() {
    let folder = tempfile::tempdir().unwrap();
    let limits = ConnectionLimits {
        time: Duration::from_millis(150),
        ..LIMITS
    };
    let served = Served::at(folder.path(), limits);
    let (mut http, mut control) = (served.http(), served.control());
    let (mut out, mut to) = (http.try_clone().unwrap(), control.try_clone().unwrap());
    let drip = std::thread::spawn(move || {
        // Continues until refused, however long that takes.
        while out.write_all(b"G").is_ok() | to.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let mut answers = [String::new(), String::new()];
    let _ = http.read_to_string(&mut answers[0]);
    let _ = control.read_to_string(&mut answers[1]);
    assert!(answers[0].starts_with("HTTP/1.1 4"), "{answers:?}");
    assert!(answers[1].contains("took too long"), "{answers:?}");
    drop((http, control));
    drip.join().unwrap();
}

#[test]
fn whatever_is_sent_has_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::at(
        folder.path(),
        ConnectionLimits {
            time: LONG,
            ..LIMITS
        },
    );
    let long = vec![b'x'; LIMITS.request_bytes * 2];
    let mut headers = b"GET /metrics HTTP/1.1\r\n".to_vec();
    (0..100).for_each(|n| headers.extend(format!("x{n}: y\r\n").bytes()));
    headers.extend(b"\r\n");
    let mut endless = b"GET /metrics HTTP/1.1\r\nx: ".to_vec();
    endless.extend(&long);
    let own = |line: &str| {
        format!(
            "{line}\r\nHost: localhost:{}\r\n\r\n",
            served.metrics.port()
        )
    };
    let (head, other) = (own("HEAD /metrics?x=1 HTTP/1.0"), own("GET / HTTP/1.1"));
    let get = served.get();
    let expected: [(&[u8], &str); 10] = [
        (&get, "HTTP/1.1 200 "),
        (head.as_bytes(), "HTTP/1.1 200 "),
        (other.as_bytes(), "HTTP/1.1 404 "),
        // Another site's name for this address.
        (
            b"GET /metrics HTTP/1.1\r\nHost: evil.example:9190\r\n\r\n",
            "HTTP/1.1 403 ",
        ),
        (b"GET /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 403 "),
        (b"POST /metrics HTTP/1.1\r\n\r\n{}", "HTTP/1.1 405 "),
        (b"\xff\xfe\0\r\n\r\n", "HTTP/1.1 400 "),
        (b"{\"ask\": \"status\"}\r\n\r\n", "HTTP/1.1 400 "),
        (&headers, "HTTP/1.1 431 "),
        (&endless, "HTTP/1.1 431 "),
    ];
    for (sent, begins) in expected {
        let answer = asked(served.http(), sent);
        assert!(answer.starts_with(begins), "{begins}: {answer}");
    }
    let expected: [(&[u8], &str); 5] = [
        (b"{\"ask\": \"get\"}\n{\"ask\": \"get\"}\n", "period"),
        (b"{\"ask\": \"\xff\"}\n", "this is not JSON"),
        (b"\n", "this is not JSON"),
        (b"[[[[\n", "this is not JSON"),
        (&long, "the request is too long"),
    ];
    for (sent, holds) in expected {
        let answer = asked(served.control(), sent);
        assert!(answer.contains(holds) && answer.ends_with('\n'), "{answer}");
    }
    // Half a request, then the end of input.
    let (http, control) = (served.http(), served.control());
    (&http).write_all(&get[..9]).unwrap();
    (&control).write_all(b"{\"ask\": ").unwrap();
    http.shutdown(Shutdown::Write).unwrap();
    control.shutdown(Shutdown::Write).unwrap();
    assert!(heard(http).starts_with("HTTP/1.1 400 "));
    assert!(heard(control).contains("this is not JSON"));
}

/// Service that panics on each request.
struct Broken;

impl Service for Broken {
    #[allow(clippy::panic)]
    fn answer(&mut self, _: &[u8], _: bool) -> Option<Vec<u8>> {
        panic!("a defect");
    }

    fn refuse(&mut self, why: Refusal) -> Vec<u8> {
        format!("{why:?}").into_bytes()
    }
}

#[test]
fn an_answer_that_fails_ends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken");
    let listener = Listener::Unix(UnixListener::bind(&path).unwrap());
    let _server = Server::start(vec![Door::new(listener, Box::new(Broken))]).unwrap();
    for _ in 0..3 {
        assert_eq!(asked(Unix::connect(&path).unwrap(), b"x"), "Failed");
    }
}

#[test]
fn a_socket_is_its_users_alone_and_goes_with_its_run() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run-1.sock");
    // Replaces the socket of a killed run.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let served = Served::at(folder.path(), LIMITS);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(
        socket::answering(folder.path()),
        std::slice::from_ref(&path)
    );
    let topology = {
        let (machine, _) = countersteer_lab::library::machine("i9-12900k-8p8e").unwrap();
        Arc::new(Topology::new(&machine))
    };
    let second = socket::door(&path, &topology, &RunControl::default());
    assert!(second.is_err_and(|why| why.to_string().contains("another run answers")));
    drop(served);
    assert!(!path.exists());
}
