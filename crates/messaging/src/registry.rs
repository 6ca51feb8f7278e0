//! The state that the sockets of a context share: their names inside the process, the background, and the context's
//! end.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ropewalk_os::cpu;
use ropewalk_sync::{Condvar, Mutex};
use ropewalk_zmtp::SocketType;

use crate::background::{Background, Notice};
use crate::error::{Error, Result, errno};
use crate::names::Names;
use crate::notifier::Notifier;
use crate::options::Options;

/// Sockets and contexts have numbers of their own in the whole process.
static NEXT: AtomicU64 = AtomicU64::new(1);
/// libzmq's answer to MAX_SOCKETS, unless it is set.
const MAX_SOCKETS: i32 = 1023;

/// The options of a context.
pub(crate) struct Settings {
    pub(crate) io_threads: i32,
    pub(crate) max_sockets: i32,
    pub(crate) max_message: i32,
    pub(crate) ipv6: bool,
    pub(crate) is_blocky: bool,
    pub(crate) zero_copy: bool,
}

/// The sockets of a context.
pub(crate) struct Members {
    pub(crate) sockets: HashMap<u64, Weak<Notifier>>,
    /// Sockets that are open, or still have something to send.
    pub(crate) open: usize,
    pub(crate) settings: Settings,
}

/// See the module.
pub(crate) struct Registry {
    pub(crate) id: u64,
    pub(crate) background: Arc<Background>,
    pub(crate) names: Mutex<Names>,
    /// No call goes on. Stored before the sockets are woken.
    pub(crate) is_terminated: AtomicBool,
    pub(crate) members: Mutex<Members>,
    /// A socket is gone.
    pub(crate) gone: Condvar,
    random: AtomicU64,
    may_spin: bool,
    /// MAX_MSGSZ: no larger part is sent.
    pub(crate) most_bytes: AtomicU32,
}

impl Registry {
    /// A new one.
    ///
    /// # Panics
    ///
    /// When the process is out of descriptors.
    pub(crate) fn new() -> Self {
        let background = Background::new().expect("descriptors for a context");
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let seed = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(id, |time| time.as_nanos() as u64 ^ id.rotate_left(32));
        Self {
            id,
            background: Arc::new(background),
            names: Mutex::default(),
            is_terminated: AtomicBool::new(false),
            members: Mutex::new(Members {
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
        }
    }

    /// Makes a socket, by its number and its first options, and counts it in.
    ///
    /// # Errors
    ///
    /// ETERM when the context has ended, EMFILE when it has its most sockets, or what `make` gives.
    pub(crate) fn admit<T>(
        &self,
        kind: SocketType,
        make: impl FnOnce(u64, Options) -> io::Result<(T, Weak<Notifier>)>,
    ) -> Result<T> {
        let mut members = self.members.lock();
        if self.is_terminated.load(Ordering::SeqCst) {
            return Err(Error::terminated());
        }
        if members.open >= members.settings.max_sockets as usize {
            return Err(Error::new(errno::EMFILE, "the context has as many sockets as MAX_SOCKETS allows"));
        }
        // Subscribers send nothing that is worth waiting for.
        let is_brief = matches!(kind, SocketType::Sub | SocketType::XSub | SocketType::Dish);
        let linger = (is_brief || !members.settings.is_blocky).then_some(Duration::ZERO);
        let options = Options { ipv6: members.settings.ipv6, linger, ..Options::default() };
        self.background.start()?;
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let (socket, notifier) = make(id, options)?;
        members.sockets.insert(id, notifier);
        members.open += 1;
        Ok(socket)
    }

    /// Removes a socket that has finished.
    pub(crate) fn closed(&self, id: u64) {
        let mut members = self.members.lock();
        if members.sockets.remove(&id).is_some() {
            members.open -= 1;
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

    /// Whether spinning may be faster than sleeping: there is another core to do the awaited work. Each socket learns
    /// whether it pays.
    #[inline]
    pub(crate) fn may_spin(&self) -> bool {
        self.may_spin
    }

    /// A random number; not a secret.
    pub(crate) fn random(&self) -> u64 {
        // SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
        let mut mixed = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        if self.background.is_started() {
            self.background.notify(Notice::Stop);
        }
    }
}
