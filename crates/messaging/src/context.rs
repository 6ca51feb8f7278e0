//! A context, which makes sockets and ends them together.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ropewalk_zmtp::SocketType;

use crate::error::{Error, Result};
use crate::mail::Mail;
use crate::notifier::Notifier;
use crate::options::context;
use crate::registry::Registry;
use crate::socket::Socket;

/// The most that MAX_SOCKETS can be; libzmq's.
const SOCKET_LIMIT: i32 = 65_535;

/// A context. Clones are the same one. It lives as long as one of them or of its sockets does.
#[derive(Clone)]
pub struct Context(Arc<Registry>);

impl Context {
    /// A new context. Its thread is started with its first socket.
    ///
    /// # Panics
    ///
    /// When the process is out of descriptors.
    pub fn new() -> Self {
        Self(Arc::new(Registry::new()))
    }

    /// The context of a socket.
    pub fn of(socket: &Socket) -> Self {
        Self(Arc::clone(socket.registry()))
    }

    /// Its number in the process.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Sets an option.
    ///
    /// # Errors
    ///
    /// EINVAL for an option that does not exist or is not supported, or for a value out of range.
    pub fn set(&self, number: i32, value: i32) -> Result<()> {
        let settings = &mut self.0.members.lock().settings;
        match (number, value) {
            // There are no I/O threads: the program's threads do the work. The number is stored, because programs read
            // it back.
            (context::IO_THREADS, 0..) => settings.io_threads = value,
            (context::MAX_SOCKETS, 1..=SOCKET_LIMIT) => settings.max_sockets = value,
            (context::MAX_MSGSZ, 0..) => {
                settings.max_message = value;
                self.0.most_bytes.store(value.unsigned_abs(), Ordering::Relaxed);
            }
            (context::IPV6, 0 | 1) => settings.ipv6 = value == 1,
            (context::BLOCKY, 0 | 1) => settings.is_blocky = value == 1,
            (context::ZERO_COPY_RECV, 0 | 1) => settings.zero_copy = value == 1,
            _ => {
                return Err(Error::invalid(format!(
                    "the context's option {number} is not supported, or not with {value}"
                )));
            }
        }
        Ok(())
    }

    /// The value of an option.
    ///
    /// # Errors
    ///
    /// EINVAL for an option that does not exist.
    pub fn get(&self, number: i32) -> Result<i32> {
        let settings = &self.0.members.lock().settings;
        Ok(match number {
            context::IO_THREADS => settings.io_threads,
            context::MAX_SOCKETS => settings.max_sockets,
            context::SOCKET_LIMIT => SOCKET_LIMIT,
            context::MAX_MSGSZ => settings.max_message,
            // libzmq's, which programs compare with: the size of its zmq_msg_t.
            context::MSG_T_SIZE => 64,
            context::IPV6 => i32::from(settings.ipv6),
            context::BLOCKY => i32::from(settings.is_blocky),
            context::ZERO_COPY_RECV => i32::from(settings.zero_copy),
            _ => return Err(Error::invalid(format!("the context has no option {number}"))),
        })
    }

    /// A new socket.
    ///
    /// # Errors
    ///
    /// ETERM when the context has ended, EMFILE when it has its most sockets or the process is out of descriptors.
    pub fn socket(&self, kind: SocketType) -> Result<Socket> {
        Socket::open(&self.0, kind)
    }

    /// Ends it without waiting: calls that block, and later ones, give ETERM.
    pub fn shutdown(&self) {
        self.0.is_terminated.store(true, Ordering::SeqCst);
        let sockets: Vec<Arc<Notifier>> =
            self.0.members.lock().sockets.values().filter_map(Weak::upgrade).collect();
        for socket in sockets {
            socket.post(Mail::Terminated, false);
        }
    }

    /// Ends it, and waits this long until its sockets are closed and have sent their messages. Returns false if that is
    /// not enough: call it again.
    pub fn term(&self, wait: Duration) -> bool {
        self.shutdown();
        let until = Instant::now() + wait;
        let mut members = self.0.members.lock();
        while members.open > 0 {
            let is_late;
            (members, is_late) =
                self.0.gone.wait_timeout(members, until.saturating_duration_since(Instant::now()));
            if is_late {
                return members.open == 0;
            }
        }
        true
    }

    /// Whether it has ended, or is ending.
    pub fn is_closed(&self) -> bool {
        self.0.is_terminated.load(Ordering::SeqCst)
    }
}

impl Default for Context {
    fn default() -> Self {
        Self::new()
    }
}
