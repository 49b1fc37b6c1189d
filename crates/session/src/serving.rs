//! Server for the control socket, the metrics for Prometheus and the live page. One thread serves the requests of all clients.
//!
//! Input: [`Door`]s, i.e. listeners with their services. Output: an answer on every connection, regardless of the request. Size
//! and time of a request are limited. If there are too many connections, the oldest is closed with a message to retry, so
//! clients that send promptly are served. The thread that steers or counts is not affected by any request.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use countersteer_counters::is_among_the_last;
use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Events, Interest, Poll, Token, Waker};

/// Limits on the connections to one listener.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Maximum number of open connections.
    pub connections: usize,
    pub request_bytes: usize,
    /// Time limit for receiving the request, and separately for sending the answer.
    pub time: Duration,
}

pub(crate) const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: 16,
    request_bytes: 1 << 16,
    time: Duration::from_secs(2),
};

/// Reason to refuse a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Too many connections are open.
    Crowded,
    /// The client did not send its request within the time limit.
    Slow,
    /// The request exceeds the maximum size.
    Long,
    /// The service panicked.
    Failed,
}

impl Refusal {
    /// Returns a message for the client.
    pub const fn why(self) -> &'static str {
        match self {
            Self::Crowded => "too many connections; try again",
            Self::Slow => "the request took too long",
            Self::Long => "the request is too long",
            Self::Failed => "answering has failed; this is a defect of steer",
        }
    }
}

/// Service that answers the requests on a listener.
pub trait Service: Send {
    /// Returns the answer if `received` is a complete request, otherwise `None`. Always returns an answer if `ended`, i.e. if
    /// the client sends no more.
    fn answer(&mut self, received: &[u8], ended: bool) -> Option<Vec<u8>>;
    fn refuse(&mut self, why: Refusal) -> Vec<u8>;
}

pub enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Listener, the service for its requests, and the limits on its connections.
pub struct Door {
    pub listener: Listener,
    pub service: Box<dyn Service>,
    pub limits: ConnectionLimits,
    /// Time at which the listener accepts connections again after a temporary failure or a full batch; `None` if it is not
    /// paused.
    again: Option<Instant>,
}

impl Door {
    pub fn new(listener: Listener, service: Box<dyn Service>) -> Self {
        Self {
            listener,
            service,
            limits: LIMITS,
            again: None,
        }
    }
}

/// Thread that serves requests; dropping this value ends the thread.
pub(crate) struct Server {
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

const END: Token = Token(usize::MAX);
const CANNOT_WAIT: &str = "cannot wait for requests";
/// Maximum number of connections that are accepted before open connections are served.
const AT_ONCE: usize = 64;
/// Time before the next attempt to accept a connection if the system lacks resources for another one.
const NO_ROOM: Duration = Duration::from_millis(100);
/// Maximum number of bytes that are read and discarded if a client sends more after its answer.
const MOST_IGNORED: usize = 1 << 20;

impl Server {
    /// Starts a thread that serves requests on these listeners until the returned value is dropped.
    pub fn start(mut doors: Vec<Door>) -> anyhow::Result<Self> {
        let poll = Poll::new().context(CANNOT_WAIT)?;
        for (number, door) in doors.iter_mut().enumerate() {
            let source: &mut dyn Source = match &mut door.listener {
                Listener::Unix(listener) => listener,
                Listener::Tcp(listener) => listener,
            };
            poll.registry()
                .register(source, Token(number), Interest::READABLE)
                .context(CANNOT_WAIT)?;
        }
        let waker = Waker::new(poll.registry(), END).context(CANNOT_WAIT)?;
        let server = ListenerPoller {
            poll,
            next: doors.len(),
            doors,
            open: BTreeMap::new(),
        };
        let thread = std::thread::Builder::new()
            .name("steer-serving".into())
            .spawn(move || server.serve())
            .context("cannot start a thread for requests")?;
        Ok(Self {
            waker,
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.waker.wake().is_ok() {
            let _ = self.thread.take().map(JoinHandle::join);
        }
    }
}

trait AnyStream: Read + Write + Source + AsFd + Send {
    fn end_writing(&self) -> io::Result<()>;
}

impl AnyStream for UnixStream {
    fn end_writing(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl AnyStream for TcpStream {
    fn end_writing(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

enum ConnectionState {
    Reading(Vec<u8>),
    /// Sending the answer: its text, and the number of bytes sent so far.
    Writing(Vec<u8>, usize),
    /// Answer sent. Input is still read and counted (in bytes), because closing with unread input would discard the answer.
    Leaving(usize),
}

struct Connection {
    stream: Box<dyn AnyStream>,
    door: usize,
    state: ConnectionState,
    until: Instant,
}

struct ListenerPoller {
    poll: Poll,
    doors: Vec<Door>,
    /// Open connections by number, in order of arrival.
    open: BTreeMap<usize, Connection>,
    next: usize,
}

impl ListenerPoller {
    fn serve(mut self) {
        let mut events = Events::with_capacity(128);
        loop {
            match self.poll.poll(&mut events, self.pause()) {
                Err(error) if error.kind() != ErrorKind::Interrupted => {
                    say!("requests are no longer served ({error}); this command continues");
                    return;
                }
                _ => {}
            }
            for event in &events {
                match event.token() {
                    END => return,
                    Token(door) if door < self.doors.len() => self.welcome(door),
                    Token(number) => self.proceed(number),
                }
            }
            let now = Instant::now();
            for door in 0..self.doors.len() {
                if self.doors[door].again.is_some_and(|at| at <= now) {
                    self.welcome(door);
                }
            }
            self.dismiss(now);
        }
    }

    /// Returns the time until the next deadline; `None` if there is none.
    fn pause(&self) -> Option<Duration> {
        let doors = self.doors.iter().filter_map(|door| door.again);
        let connections = self.open.values().map(|connection| connection.until);
        let first = doors.chain(connections).min()?;
        // One millisecond is added, so that the deadline has certainly passed after the wait.
        Some(first.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
    }

    /// Accepts the waiting connections of a listener, up to a limit.
    fn welcome(&mut self, door: usize) {
        self.doors[door].again = None;
        for _ in 0..AT_ONCE {
            let taken: io::Result<Box<dyn AnyStream>> = match &self.doors[door].listener {
                Listener::Unix(listener) => listener.accept().map(|(s, _)| Box::new(s) as _),
                Listener::Tcp(listener) => listener.accept().map(|(s, _)| Box::new(s) as _),
            };
            match taken {
                Ok(stream) => self.admit(door, stream),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                    _ => {
                        self.doors[door].again = Some(Instant::now() + NO_ROOM);
                        return;
                    }
                },
            }
        }
        self.doors[door].again = Some(Instant::now());
    }

    fn admit(&mut self, door: usize, mut stream: Box<dyn AnyStream>) {
        let limits = self.doors[door].limits;
        let of_door: Vec<usize> = (self.open.iter())
            .filter(|(_, connection)| connection.door == door)
            .map(|(number, _)| *number)
            .collect();
        if of_door.len() >= limits.connections
            && let Some(mut oldest) = self.open.remove(&of_door[0])
            && matches!(oldest.state, ConnectionState::Reading(_))
        {
            self.send_off(door, &mut *oldest.stream);
        }
        if is_among_the_last(stream.as_fd()) {
            return self.send_off(door, &mut *stream);
        }
        let number = self.next;
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = self
            .poll
            .registry()
            .register(&mut stream, Token(number), interest);
        if registered.is_err() {
            return self.send_off(door, &mut *stream);
        }
        self.next += 1;
        let connection = Connection {
            stream,
            door,
            state: ConnectionState::Reading(Vec::new()),
            until: Instant::now() + limits.time,
        };
        self.open.insert(number, connection);
        // The request may have arrived before the registration, which then reports no event.
        self.proceed(number);
    }

    /// Sends a refusal to a client that exceeds the connection limit, provided that the write does not block.
    fn send_off(&mut self, door: usize, stream: &mut dyn AnyStream) {
        let text = self.doors[door].service.refuse(Refusal::Crowded);
        let _ = stream.write(&text);
        let _ = stream.end_writing();
    }

    /// Continues a connection until reading or writing would block; removes it after an error.
    fn proceed(&mut self, number: usize) {
        let Some(connection) = self.open.get_mut(&number) else {
            return;
        };
        if connection
            .proceed(&mut self.doors[connection.door])
            .is_err()
        {
            // The connection is closed; other connections are not affected.
            self.open.remove(&number);
        }
    }

    /// Refuses connections whose request is late, and closes connections whose answer is late.
    fn dismiss(&mut self, now: Instant) {
        let late: Vec<usize> = (self.open.iter())
            .filter(|(_, connection)| connection.until <= now)
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            let Some(connection) = self.open.get_mut(&number) else {
                continue;
            };
            if matches!(connection.state, ConnectionState::Reading(_)) {
                let door = &mut self.doors[connection.door];
                connection.reply(door, |service| service.refuse(Refusal::Slow));
                self.proceed(number);
            } else {
                self.open.remove(&number);
            }
        }
    }
}

impl Connection {
    fn reply(&mut self, door: &mut Door, with: impl FnOnce(&mut dyn Service) -> Vec<u8>) {
        self.state = ConnectionState::Writing(with(&mut *door.service), 0);
        self.until = Instant::now() + door.limits.time;
    }

    /// Reads the request or writes the answer until this would block; an error closes the connection.
    fn proceed(&mut self, door: &mut Door) -> io::Result<()> {
        loop {
            let went_on = match &mut self.state {
                ConnectionState::Reading(_) => self.read(door),
                ConnectionState::Writing(text, sent) => match self.stream.write(&text[*sent..]) {
                    Ok(0) => Err(ErrorKind::WriteZero.into()),
                    Ok(n) if *sent + n < text.len() => {
                        *sent += n;
                        Ok(())
                    }
                    Ok(_) => {
                        self.state = ConnectionState::Leaving(0);
                        self.stream.end_writing()
                    }
                    Err(error) => Err(error),
                },
                ConnectionState::Leaving(ignored) => match self.stream.read(&mut [0; 4096]) {
                    Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
                    Ok(n) => {
                        *ignored += n;
                        if *ignored > MOST_IGNORED {
                            Err(ErrorKind::FileTooLarge.into())
                        } else {
                            Ok(())
                        }
                    }
                    Err(error) => Err(error),
                },
            };
            match went_on {
                Ok(()) => {}
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(()),
                    ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }

    fn read(&mut self, door: &mut Door) -> io::Result<()> {
        let ConnectionState::Reading(received) = &mut self.state else {
            return Ok(());
        };
        let mut bytes = [0; 4096];
        let n = self.stream.read(&mut bytes)?;
        received.extend_from_slice(&bytes[..n]);
        if received.len() > door.limits.request_bytes {
            self.reply(door, |service| service.refuse(Refusal::Long));
            return Ok(());
        }
        let answer = catch_unwind(AssertUnwindSafe(|| door.service.answer(received, n == 0)));
        match answer {
            Ok(Some(text)) => self.reply(door, |_| text),
            Ok(None) if n == 0 => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(None) => {}
            Err(_) => self.reply(door, |service| service.refuse(Refusal::Failed)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
