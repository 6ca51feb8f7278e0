//! What happens to a socket's connections, reported on a PAIR socket (zmq_socket_monitor(3)).

use crate::frame::Frame;

/// The events' numbers.
pub mod event {
    /// A connection was made.
    pub const CONNECTED: u64 = 0x1;
    /// It is being made.
    pub const CONNECT_DELAYED: u64 = 0x2;
    /// It will be tried again; the value is the wait in milliseconds.
    pub const CONNECT_RETRIED: u64 = 0x4;
    /// An endpoint was bound.
    pub const LISTENING: u64 = 0x8;
    /// It could not be; the value is the errno.
    pub const BIND_FAILED: u64 = 0x10;
    /// A peer has connected.
    pub const ACCEPTED: u64 = 0x20;
    /// One could not be taken; the value is the errno.
    pub const ACCEPT_FAILED: u64 = 0x40;
    /// A connection that was not up, or a listener, was closed.
    pub const CLOSED: u64 = 0x80;
    /// It could not be closed.
    pub const CLOSE_FAILED: u64 = 0x100;
    /// A connection is gone.
    pub const DISCONNECTED: u64 = 0x200;
    /// The monitor ends.
    pub const MONITOR_STOPPED: u64 = 0x400;
    /// A handshake failed; the value is the errno.
    pub const HANDSHAKE_FAILED_NO_DETAIL: u64 = 0x800;
    /// A handshake has succeeded.
    pub const HANDSHAKE_SUCCEEDED: u64 = 0x1000;
    /// A peer broke the protocol; the value says how.
    pub const HANDSHAKE_FAILED_PROTOCOL: u64 = 0x2000;
    /// The authenticator has refused; the value is its status.
    pub const HANDSHAKE_FAILED_AUTH: u64 = 0x4000;
    /// All of them.
    pub const ALL: u64 = 0xffff;
}

/// The socket on which a monitor reports.
pub(crate) trait MonitorSocket: Send {
    /// Sends a message, if a peer takes it.
    fn send(&self, parts: &mut Vec<Frame>);
    /// Sends no more.
    fn end(&self);
}

/// One monitor.
pub(crate) struct Monitor {
    socket: Box<dyn MonitorSocket>,
    events: u64,
    version: i32,
}

impl Monitor {
    pub(crate) fn new(socket: Box<dyn MonitorSocket>, events: u64, version: i32) -> Self {
        Self { socket, events, version }
    }

    /// Reports an event, if there is a listener; events are not kept.
    pub(crate) fn tell(&self, event: u64, value: i32, address: &str) {
        if self.events & event == 0 {
            return;
        }
        let mut parts = if self.version == 1 {
            let mut head = Vec::with_capacity(6);
            head.extend_from_slice(&(event as u16).to_ne_bytes());
            head.extend_from_slice(&value.to_ne_bytes());
            vec![Frame::copy_of(&head), Frame::copy_of(address.as_bytes())]
        } else {
            let number = |number: u64| Frame::copy_of(&number.to_ne_bytes());
            vec![
                number(event),
                number(1),
                number(u64::from(value.cast_unsigned())),
                Frame::copy_of(address.as_bytes()),
                Frame::copy_of(address.as_bytes()),
            ]
        };
        self.socket.send(&mut parts);
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.tell(event::MONITOR_STOPPED, 0, "");
        self.socket.end();
    }
}
