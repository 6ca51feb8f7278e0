//! A context: its sockets, their names inside the process, and its end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ropewalk_os::cpu;
use ropewalk_sync::{Condvar, Mutex};
use ropewalk_zmtp::SocketType;

use crate::background::{Background, Notice};
use crate::error::{Error, Result, errno};
use crate::inproc::Names;
use crate::mailbox::Mail;
use crate::options::{Options, option};
use crate::shared::Shared;
use crate::socket::Socket;

/// Sockets have numbers of their own in the whole process.
static NEXT: AtomicU64 = AtomicU64::new(1);
/// libzmq's answer to MAX_SOCKETS and SOCKET_LIMIT, unless it is told otherwise.
const MAX_SOCKETS: i32 = 1023;
const SOCKET_LIMIT: i32 = 65_535;

struct Settings {
    io_threads: i32,
    max_sockets: i32,
    max_message: i32,
    ipv6: bool,
    is_blocky: bool,
    zero_copy: bool,
}

struct State {
    sockets: HashMap<u64, Weak<Shared>>,
    /// Sockets that are open, or still have something to send.
    open: usize,
    settings: Settings,
}

/// What the sockets of a context share.
pub(crate) struct Inner {
    id: u64,
    pub(crate) background: Arc<Background>,
    pub(crate) names: Mutex<Names>,
    /// No call goes on. Stored before the sockets are woken.
    pub(crate) is_terminated: AtomicBool,
    state: Mutex<State>,
    /// A socket is gone.
    gone: Condvar,
    random: AtomicU64,
    may_spin: bool,
    /// MAX_MSGSZ: no larger part is sent.
    most_bytes: AtomicU32,
}

impl Inner {
    /// A socket has nothing left to do.
    pub(crate) fn closed(&self, id: u64) {
        let mut state = self.state.lock();
        if state.sockets.remove(&id).is_some() {
            state.open -= 1;
            self.gone.notify_all();
        }
    }

    /// Refuses a part that is larger than MAX_MSGSZ allows; its default, as libzmq has it, allows everything.
    #[inline]
    pub(crate) fn check_size(&self, bytes: usize) -> Result<()> {
        let most = self.most_bytes.load(Ordering::Relaxed);
        if bytes > most as usize && most != i32::MAX.unsigned_abs() {
            return Err(Error::new(
                errno::EMSGSIZE,
                format!("the context's MAX_MSGSZ allows {most} bytes, not {bytes}"),
            ));
        }
        Ok(())
    }

    /// Whether looking again and again may be faster than sleeping: there is another core to do what is waited for.
    /// Whether it does is learnt by each socket.
    #[inline]
    pub(crate) fn may_spin(&self) -> bool {
        self.may_spin
    }

    /// A number that nobody guesses by accident; not a secret.
    pub(crate) fn random(&self) -> u64 {
        // SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
        let mut mixed = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.background.is_started() {
            self.background.notify(Notice::Stop);
        }
    }
}

/// A context. Clones are the same one. It lives as long as one of them or of its sockets does.
#[derive(Clone)]
pub struct Context(pub(crate) Arc<Inner>);

impl Context {
    /// A new one. Its thread is started with its first socket.
    ///
    /// # Panics
    ///
    /// When the process is out of descriptors.
    pub fn new() -> Self {
        let background = Background::new().expect("descriptors for a context");
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let seed = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(id, |time| time.as_nanos() as u64 ^ id.rotate_left(32));
        Self(Arc::new(Inner {
            id,
            background: Arc::new(background),
            names: Mutex::default(),
            is_terminated: AtomicBool::new(false),
            state: Mutex::new(State {
                sockets: HashMap::new(),
                open: 0,
                settings: Settings {
                    io_threads: 1,
                    max_sockets: MAX_SOCKETS,
                    max_message: i32::MAX,
                    ipv6: false,
                    is_blocky: true,
                    zero_copy: true,
                },
            }),
            gone: Condvar::new(),
            random: AtomicU64::new(seed ^ u64::from(std::process::id()) << 17),
            may_spin: cpu::online_cores() > 1,
            most_bytes: AtomicU32::new(i32::MAX.unsigned_abs()),
        }))
    }

    /// Its number in the process.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Sets an option.
    ///
    /// # Errors
    ///
    /// EINVAL for an option that there is not, that is not supported, or for a value out of range.
    pub fn set(&self, number: i32, value: i32) -> Result<()> {
        use option::context;
        let settings = &mut self.0.state.lock().settings;
        match (number, value) {
            // There are none: the program's threads do the work. A number is remembered, since programs read it back.
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
    /// EINVAL for an option that there is not.
    pub fn get(&self, number: i32) -> Result<i32> {
        use option::context;
        let settings = &self.0.state.lock().settings;
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
        if kind == SocketType::Dgram {
            return Err(Error::invalid("DGRAM sockets are not supported: they need udp"));
        }
        let inner = &self.0;
        let mut state = inner.state.lock();
        if inner.is_terminated.load(Ordering::SeqCst) {
            return Err(Error::terminated());
        }
        if state.open >= state.settings.max_sockets as usize {
            return Err(Error::new(errno::EMFILE, "the context has as many sockets as MAX_SOCKETS allows"));
        }
        // Subscribers have nothing to say that is worth waiting for.
        let is_brief = matches!(kind, SocketType::Sub | SocketType::XSub | SocketType::Dish);
        let linger = (is_brief || !state.settings.is_blocky).then_some(Duration::ZERO);
        let options = Options { ipv6: state.settings.ipv6, linger, ..Options::default() };
        inner.background.start()?;
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let shared = Shared::create(id, kind, inner, options)?;
        state.sockets.insert(id, Arc::downgrade(&shared));
        state.open += 1;
        drop(state);
        inner.background.notify(Notice::Add(Arc::clone(&shared)));
        Ok(Socket::from_shared(shared))
    }

    /// Ends it without waiting: calls that block, and later ones, give ETERM.
    pub fn shutdown(&self) {
        self.0.is_terminated.store(true, Ordering::SeqCst);
        let sockets: Vec<Arc<Shared>> =
            self.0.state.lock().sockets.values().filter_map(Weak::upgrade).collect();
        for socket in sockets {
            socket.post(Mail::Terminated, false);
        }
    }

    /// Ends it, and waits so long for its sockets to be closed and for what they have to send. False if that is not
    /// enough: call it again.
    pub fn term(&self, wait: Duration) -> bool {
        self.shutdown();
        let until = Instant::now() + wait;
        let mut state = self.0.state.lock();
        while state.open > 0 {
            let is_late;
            (state, is_late) =
                self.0.gone.wait_timeout(state, until.saturating_duration_since(Instant::now()));
            if is_late {
                return state.open == 0;
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
