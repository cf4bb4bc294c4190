//! Connections on which an attempt is given up for want of progress, never for taking long.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, RustlsConnector, Transport,
};

/// Bytes of a connection's buffer in each direction; large bodies pass through in pieces of it.
const BUFFER_BYTES: usize = 64 << 10;

/// Waits are cut into this many pieces, after each of which the send queue is looked at.
const LOOKS_PER_WAIT: u32 = 4;

/// Opens TCP connections whose every wait ends after `patience` without progress, and wraps them in TLS for `https`.
pub(crate) struct PatientConnector {
    patience: Duration,
    tls: Arc<RustlsConnector>,
}

impl PatientConnector {
    pub(crate) fn new(patience: Duration, tls: Arc<RustlsConnector>) -> Self {
        Self { patience, tls }
    }
}

impl fmt::Debug for PatientConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PatientConnector").field("patience", &self.patience).finish()
    }
}

impl Connector for PatientConnector {
    type Out = <RustlsConnector as Connector<PatientTransport>>::Out;

    fn connect(&self, details: &ConnectionDetails, _: Option<()>) -> Result<Option<Self::Out>, Error> {
        let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in &details.addrs {
            match TcpStream::connect_timeout(address, self.patience) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return self.tls.connect(details, Some(PatientTransport::new(stream, self.patience)?));
                }
                Err(error) => failure = error,
            }
        }
        Err(Error::Io(failure))
    }
}

/// A TCP connection that watches its own progress.
pub(crate) struct PatientTransport {
    stream: TcpStream,
    buffers: LazyBuffers,
    patience: Duration,
}

impl PatientTransport {
    fn new(stream: TcpStream, patience: Duration) -> io::Result<Self> {
        stream.set_read_timeout(Some((patience / LOOKS_PER_WAIT).max(Duration::from_millis(1))))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self { stream, buffers: LazyBuffers::new(BUFFER_BYTES, BUFFER_BYTES), patience })
    }
}

impl fmt::Debug for PatientTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PatientTransport").field("peer", &self.stream.peer_addr().ok()).finish()
    }
}

fn no_progress(what: &str, patience: Duration) -> Error {
    let text = format!("no progress for {} ms while {what}", patience.as_millis());
    Error::Io(io::Error::new(io::ErrorKind::TimedOut, text))
}

fn waited_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl Transport for PatientTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), Error> {
        let mut rest = &self.buffers.output()[..amount];
        while !rest.is_empty() {
            // The socket's timeout ends a call in which not one byte was taken; a call that took some returns them.
            match self.stream.write(rest) {
                Ok(0) => return Err(Error::Io(io::ErrorKind::WriteZero.into())),
                Ok(taken) => rest = &rest[taken..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if waited_out(&error) => return Err(no_progress("sending", self.patience)),
                Err(error) => return Err(Error::Io(error)),
            }
        }
        Ok(())
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, Error> {
        let mut progressed = Instant::now();
        let mut unsent = unsent_bytes(&self.stream);
        loop {
            let input = self.buffers.input_append_buf();
            match self.stream.read(input) {
                Ok(amount) => {
                    self.buffers.input_appended(amount);
                    return Ok(amount > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if waited_out(&error) => {
                    // On a slow link the kernel holds megabytes that we have written and the peer has not yet got:
                    // as long as that queue shrinks, the request makes progress.
                    let left = unsent_bytes(&self.stream);
                    if left < unsent {
                        progressed = Instant::now();
                    }
                    unsent = left;
                    if progressed.elapsed() >= self.patience {
                        return Err(no_progress("waiting for the answer", self.patience));
                    }
                }
                Err(error) => return Err(Error::Io(error)),
            }
        }
    }

    fn is_open(&mut self) -> bool {
        // An idle connection has nothing to read: bytes, or an end, mean that it is of no more use.
        let quiet = self.stream.set_nonblocking(true).is_ok()
            && matches!(self.stream.peek(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        quiet && self.stream.set_nonblocking(false).is_ok()
    }
}

/// Bytes written to a socket that the peer has not acknowledged; 0 where the system does not tell.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn unsent_bytes(stream: &TcpStream) -> u64 {
    use std::os::fd::AsRawFd;
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open for as long as `stream` is borrowed, and TIOCOUTQ stores one int.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
}

/// Bytes written to a socket that the peer has not acknowledged; 0 where the system does not tell.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn unsent_bytes(_: &TcpStream) -> u64 {
    0
}
