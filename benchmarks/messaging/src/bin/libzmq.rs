//! libzmq, by its C interface.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use ropewalk_messaging_bench::{CLIENT_KEYS, End, Kind, Link, Outcome, Peer, SERVER_KEYS, block};

#[link(name = "zmq")]
unsafe extern "C" {
    fn zmq_ctx_new() -> *mut c_void;
    fn zmq_socket(context: *mut c_void, kind: c_int) -> *mut c_void;
    fn zmq_setsockopt(socket: *mut c_void, option: c_int, value: *const c_void, size: usize) -> c_int;
    fn zmq_bind(socket: *mut c_void, endpoint: *const c_char) -> c_int;
    fn zmq_connect(socket: *mut c_void, endpoint: *const c_char) -> c_int;
    fn zmq_send(socket: *mut c_void, body: *const c_void, size: usize, flags: c_int) -> c_int;
    fn zmq_recv(socket: *mut c_void, body: *mut c_void, size: usize, flags: c_int) -> c_int;
    fn zmq_errno() -> c_int;
    fn zmq_strerror(number: c_int) -> *const c_char;
}

const SNDMORE: c_int = 2;
const SUBSCRIBE: c_int = 6;
const SNDHWM: c_int = 23;
const RCVHWM: c_int = 24;
const CURVE_SERVER: c_int = 47;
const CURVE_PUBLICKEY: c_int = 48;
const CURVE_SECRETKEY: c_int = 49;
const CURVE_SERVERKEY: c_int = 50;

struct Libzmq;

#[derive(Clone)]
struct Hub(*mut c_void);

// SAFETY: libzmq's contexts may be used by all threads.
unsafe impl Send for Hub {}

struct Socket {
    raw: *mut c_void,
    room: Vec<u8>,
}

fn checked(result: c_int) -> Outcome<usize> {
    usize::try_from(result).map_err(|_| {
        // SAFETY: it reads this thread's number.
        let number = unsafe { zmq_errno() };
        // SAFETY: the string is static, and ends with a zero.
        let text = unsafe { CStr::from_ptr(zmq_strerror(number)) };
        text.to_string_lossy().into_owned().into()
    })
}

impl Socket {
    fn set(&self, option: c_int, value: &[u8]) -> Outcome<()> {
        // SAFETY: the socket is open, and the value is as long as said.
        checked(unsafe { zmq_setsockopt(self.raw, option, value.as_ptr().cast(), value.len()) })?;
        Ok(())
    }

    fn put(&mut self, body: &[u8], flags: c_int) -> Outcome<()> {
        // SAFETY: the socket is open, and the body is as long as said.
        checked(unsafe { zmq_send(self.raw, body.as_ptr().cast(), body.len(), flags) })?;
        Ok(())
    }

    fn get(&mut self) -> Outcome<usize> {
        // SAFETY: the socket is open, and the room is as large as said.
        checked(unsafe { zmq_recv(self.raw, self.room.as_mut_ptr().cast(), self.room.len(), 0) })
    }
}

impl Peer for Libzmq {
    type Hub = Hub;
    type End = Socket;

    fn hub() -> Hub {
        // SAFETY: it has no conditions.
        Hub(unsafe { zmq_ctx_new() })
    }

    fn drive<T>(work: impl Future<Output = T>) -> T {
        block(work)
    }

    async fn open(hub: &Hub, kind: Kind, link: &Link) -> Outcome<Socket> {
        let number = match kind {
            Kind::Pub => 1,
            Kind::Sub => 2,
            Kind::Req => 3,
            Kind::Rep => 4,
            Kind::Dealer => 5,
            Kind::Router => 6,
            Kind::Pull => 7,
            Kind::Push => 8,
        };
        // SAFETY: the context is never closed.
        let raw = unsafe { zmq_socket(hub.0, number) };
        if raw.is_null() {
            checked(-1)?;
        }
        let socket = Socket { raw, room: vec![0; 64 << 10] };
        if matches!(kind, Kind::Pub | Kind::Sub) {
            let mark = ropewalk_messaging_bench::HIGH_WATER.to_ne_bytes();
            socket.set(SNDHWM, &mark)?;
            socket.set(RCVHWM, &mark)?;
        }
        if kind == Kind::Sub {
            socket.set(SUBSCRIBE, b"")?;
        }
        if link.curve {
            let (public, secret) = if link.bind { SERVER_KEYS } else { CLIENT_KEYS };
            match link.bind {
                true => socket.set(CURVE_SERVER, &1i32.to_ne_bytes())?,
                false => socket.set(CURVE_SERVERKEY, SERVER_KEYS.0.as_bytes())?,
            }
            socket.set(CURVE_PUBLICKEY, public.as_bytes())?;
            socket.set(CURVE_SECRETKEY, secret.as_bytes())?;
        }
        let endpoint = CString::new(link.endpoint())?;
        // SAFETY: the socket is open, and the string ends with a zero.
        checked(unsafe {
            if link.bind { zmq_bind(raw, endpoint.as_ptr()) } else { zmq_connect(raw, endpoint.as_ptr()) }
        })?;
        Ok(socket)
    }
}

impl End for Socket {
    async fn send(&mut self, body: &'static [u8]) -> Outcome<()> {
        self.put(body, 0)
    }

    async fn take(&mut self, size: usize, _most: usize) -> Outcome<usize> {
        Ok(usize::from(self.get()? == size))
    }

    async fn echo(&mut self) -> Outcome<()> {
        let length = self.get()?;
        let identity = self.room[..length].to_vec();
        let length = self.get()?;
        let body = std::mem::take(&mut self.room);
        self.put(&identity, SNDMORE)?;
        let sent = self.put(&body[..length], 0);
        self.room = body;
        sent
    }
}

fn main() {
    ropewalk_messaging_bench::main::<Libzmq>()
}
