//! The extension module's state in each interpreter: names, types, and objects of asyncio.

use std::ffi::CStr;
use std::ptr::null_mut;

use pyo3_ffi as ffi;

use super::spare::Spare;
use ropewalk_capi::module::Module;
use ropewalk_capi::object::{Object, Raised};

/// Names of attributes and methods that are looked up often.
#[repr(C)]
pub(crate) struct Names {
    pub(crate) future_class: *mut ffi::PyObject,
    pub(crate) task_class: *mut ffi::PyObject,
    pub(crate) buffer: *mut ffi::PyObject,
    pub(crate) cancelled: *mut ffi::PyObject,
    pub(crate) clear: *mut ffi::PyObject,
    pub(crate) eof: *mut ffi::PyObject,
    pub(crate) exception: *mut ffi::PyObject,
    pub(crate) limit: *mut ffi::PyObject,
    pub(crate) loop_field: *mut ffi::PyObject,
    pub(crate) maybe_resume: *mut ffi::PyObject,
    pub(crate) paused: *mut ffi::PyObject,
    pub(crate) pause_reading: *mut ffi::PyObject,
    pub(crate) resume_reading: *mut ffi::PyObject,
    pub(crate) stream_reader: *mut ffi::PyObject,
    pub(crate) transport: *mut ffi::PyObject,
    pub(crate) waiter: *mut ffi::PyObject,
    pub(crate) attach: *mut ffi::PyObject,
    pub(crate) call_connection_lost: *mut ffi::PyObject,
    pub(crate) class: *mut ffi::PyObject,
    pub(crate) connection_lost: *mut ffi::PyObject,
    pub(crate) connection_made: *mut ffi::PyObject,
    pub(crate) detach: *mut ffi::PyObject,
    pub(crate) get_peer_name: *mut ffi::PyObject,
    pub(crate) get_own_name: *mut ffi::PyObject,
    pub(crate) known: *mut ffi::PyObject,
    pub(crate) make_checked_transport: *mut ffi::PyObject,
    pub(crate) own_reader: *mut ffi::PyObject,
    pub(crate) set_result_unless_cancelled: *mut ffi::PyObject,
    pub(crate) socket: *mut ffi::PyObject,
    pub(crate) sockname: *mut ffi::PyObject,
    pub(crate) start_reading: *mut ffi::PyObject,
    pub(crate) transports: *mut ffi::PyObject,
    pub(crate) unclosed: *mut ffi::PyObject,
    pub(crate) accept_failed: *mut ffi::PyObject,
    /// A tuple: the names of the arguments with which a transport of an accepted socket is made.
    pub(crate) accepted_keywords: *mut ffi::PyObject,
    pub(crate) call_at: *mut ffi::PyObject,
    pub(crate) call_soon: *mut ffi::PyObject,
    pub(crate) call_soon_threadsafe: *mut ffi::PyObject,
    pub(crate) at_end: *mut ffi::PyObject,
    /// `b`, in the mode of a file of bytes.
    pub(crate) binary: *mut ffi::PyObject,
    pub(crate) callback_failed: *mut ffi::PyObject,
    pub(crate) callback_raised: *mut ffi::PyObject,
    pub(crate) cancel: *mut ffi::PyObject,
    pub(crate) close: *mut ffi::PyObject,
    pub(crate) closed: *mut ffi::PyObject,
    pub(crate) context: *mut ffi::PyObject,
    pub(crate) create_future: *mut ffi::PyObject,
    pub(crate) done: *mut ffi::PyObject,
    pub(crate) ensure_no_transport: *mut ffi::PyObject,
    pub(crate) eof_received: *mut ffi::PyObject,
    pub(crate) fatal_error: *mut ffi::PyObject,
    pub(crate) fileno: *mut ffi::PyObject,
    /// `__func__`, of a bound method.
    pub(crate) function: *mut ffi::PyObject,
    pub(crate) get_timeout: *mut ffi::PyObject,
    pub(crate) real_close: *mut ffi::PyObject,
    pub(crate) io_refs: *mut ffi::PyObject,
    pub(crate) loop_: *mut ffi::PyObject,
    /// A tuple of this name, as the names of a call.
    pub(crate) loop_keyword: *mut ffi::PyObject,
    pub(crate) make_socket_transport: *mut ffi::PyObject,
    pub(crate) make_tls_transport: *mut ffi::PyObject,
    pub(crate) mode: *mut ffi::PyObject,
    pub(crate) note_accepted: *mut ffi::PyObject,
    pub(crate) note_scheduled: *mut ffi::PyObject,
    pub(crate) not_opened: *mut ffi::PyObject,
    pub(crate) pause_protocol: *mut ffi::PyObject,
    pub(crate) peername: *mut ffi::PyObject,
    pub(crate) receive_by_object: *mut ffi::PyObject,
    pub(crate) resume_protocol: *mut ffi::PyObject,
    pub(crate) retry_later: *mut ffi::PyObject,
    pub(crate) run_in_debug: *mut ffi::PyObject,
    pub(crate) send_by_object: *mut ffi::PyObject,
    pub(crate) sendfile_native: *mut ffi::PyObject,
    pub(crate) set_exception: *mut ffi::PyObject,
    pub(crate) set_result: *mut ffi::PyObject,
    pub(crate) sock_sendfile: *mut ffi::PyObject,
    pub(crate) sock_sendfile_native: *mut ffi::PyObject,
    pub(crate) tell_slow: *mut ffi::PyObject,
    pub(crate) time: *mut ffi::PyObject,
    /// A tuple as `accepted_keywords`, of a transport with TLS.
    pub(crate) tls_keywords: *mut ffi::PyObject,
}

/// The module's state in one interpreter, zeroed when it is made.
#[repr(C)]
pub(crate) struct LoopModule {
    pub(crate) names: Names,
    pub(crate) handle_type: *mut ffi::PyObject,
    pub(crate) timer_type: *mut ffi::PyObject,
    pub(crate) thread_safe_type: *mut ffi::PyObject,
    pub(crate) core_type: *mut ffi::PyObject,
    pub(crate) stream_type: *mut ffi::PyObject,
    pub(crate) read_pipe_type: *mut ffi::PyObject,
    pub(crate) write_pipe_type: *mut ffi::PyObject,
    pub(crate) datagram_type: *mut ffi::PyObject,
    pub(crate) operation_type: *mut ffi::PyObject,
    pub(crate) reading_type: *mut ffi::PyObject,
    /// asyncio's class of readers with its methods, and ours, which are fed without calling their methods.
    pub(crate) reader_class: *mut ffi::PyObject,
    pub(crate) read: *mut ffi::PyObject,
    pub(crate) read_exactly: *mut ffi::PyObject,
    pub(crate) fast_reader: *mut ffi::PyObject,
    pub(crate) reader_protocol: *mut ffi::PyObject,
    /// The class of transports of connected sockets, once it is known.
    pub(crate) transport_class: *mut ffi::PyObject,
    pub(crate) incomplete_read: *mut ffi::PyObject,
    /// `asyncio.futures` and `asyncio.tasks`: programs may put classes of their own there, at any time.
    pub(crate) futures: *mut ffi::PyObject,
    pub(crate) tasks: *mut ffi::PyObject,
    pub(crate) socket_class: *mut ffi::PyObject,
    /// The class in C that `socket_class` extends, and its descriptors of `family`, `type` and `proto`: Python's class
    /// makes enumerations of the numbers.
    pub(crate) raw_socket: *mut ffi::PyObject,
    pub(crate) socket_family: *mut ffi::PyObject,
    pub(crate) socket_kind: *mut ffi::PyObject,
    pub(crate) socket_protocol: *mut ffi::PyObject,
    /// `close` of the class in C, and the two methods of Python's class that end in it.
    pub(crate) raw_close: *mut ffi::PyObject,
    pub(crate) socket_close: *mut ffi::PyObject,
    pub(crate) socket_real_close: *mut ffi::PyObject,
    /// Closed sockets by their kinds; see `sockets::keep_closed`.
    pub(crate) closed_sockets: *mut ffi::PyObject,
    pub(crate) buffered_protocol: *mut ffi::PyObject,
    /// `LoopCore.time`, to notice a class that has another one.
    pub(crate) time: *mut ffi::PyObject,
    /// asyncio's own methods, for the cases that ours leave to them.
    pub(crate) accept_connection: *mut ffi::PyObject,
    pub(crate) create_task: *mut ffi::PyObject,
    pub(crate) sock_recv: *mut ffi::PyObject,
    pub(crate) sock_recv_into: *mut ffi::PyObject,
    pub(crate) sock_sendall: *mut ffi::PyObject,
    pub(crate) sock_sendto: *mut ffi::PyObject,
    pub(crate) sock_recvfrom_into: *mut ffi::PyObject,
    pub(crate) sock_recvfrom: *mut ffi::PyObject,
    pub(crate) sock_connect: *mut ffi::PyObject,
    pub(crate) sock_accept: *mut ffi::PyObject,
    pub(crate) sock_sendfile: *mut ffi::PyObject,
    pub(crate) sendfile: *mut ffi::PyObject,
    /// Those to which these two leave what the kernel can send.
    pub(crate) sock_sendfile_native: *mut ffi::PyObject,
    pub(crate) sendfile_native: *mut ffi::PyObject,
    /// Memory of handles; null once the module was cleared.
    pub(crate) spare: *mut Spare,
    /// Whether the offsets in the interpreter's structures were found to be correct.
    pub(crate) places_known: bool,
    /// The same of the number in a socket.
    pub(crate) socket_place_known: bool,
    /// Whether the attributes of Python's class of sockets are those that a new object gets here.
    pub(crate) socket_attributes_known: bool,
    /// Whether asyncio's servers know their connections, and do not only count them: from 3.12 on.
    pub(crate) servers_know_transports: bool,
}

pub(crate) static MODULE: Module<LoopModule> = Module::new(c"_loop", c"The event loop's own part.");

/// The references that it begins with.
const OBJECTS: usize = std::mem::offset_of!(LoopModule, spare) / size_of::<*mut ffi::PyObject>();

impl Names {
    /// Interns them.
    fn fill(&mut self) -> Result<(), Raised> {
        let names = self;
        let intern = |text: &CStr| {
            // SAFETY: a C string.
            unsafe { Object::own(ffi::PyUnicode_InternFromString(text.as_ptr())) }.map(Object::into_ptr)
        };
        let tuple = |texts: &[&CStr]| {
            // SAFETY: a fresh tuple, which gets as many strings as it has places.
            unsafe {
                let made = Object::own(ffi::PyTuple_New(texts.len() as ffi::Py_ssize_t))?;
                for (at, text) in texts.iter().enumerate() {
                    ffi::PyTuple_SET_ITEM(made.as_ptr(), at as ffi::Py_ssize_t, intern(text)?);
                }
                Ok(made.into_ptr())
            }
        };
        names.future_class = intern(c"Future")?;
        names.task_class = intern(c"Task")?;
        names.buffer = intern(c"_buffer")?;
        names.cancelled = intern(c"cancelled")?;
        names.clear = intern(c"clear")?;
        names.eof = intern(c"_eof")?;
        names.exception = intern(c"_exception")?;
        names.limit = intern(c"_limit")?;
        names.loop_field = intern(c"_loop")?;
        names.maybe_resume = intern(c"_maybe_resume_transport")?;
        names.paused = intern(c"_paused")?;
        names.pause_reading = intern(c"pause_reading")?;
        names.resume_reading = intern(c"resume_reading")?;
        names.stream_reader = intern(c"_stream_reader_wr")?;
        names.transport = intern(c"_transport")?;
        names.waiter = intern(c"_waiter")?;
        names.attach = intern(c"_attach")?;
        names.call_connection_lost = intern(c"_call_connection_lost")?;
        names.class = intern(c"__class__")?;
        names.connection_lost = intern(c"connection_lost")?;
        names.connection_made = intern(c"connection_made")?;
        names.detach = intern(c"_detach")?;
        names.get_peer_name = intern(c"getpeername")?;
        names.get_own_name = intern(c"getsockname")?;
        names.known = intern(c"known")?;
        names.make_checked_transport = intern(c"_make_checked_transport")?;
        names.own_reader = intern(c"_stream_reader")?;
        names.set_result_unless_cancelled = intern(c"_set_result_unless_cancelled")?;
        names.socket = intern(c"socket")?;
        names.sockname = intern(c"sockname")?;
        names.start_reading = intern(c"_start_reading")?;
        names.transports = intern(c"_transports")?;
        names.unclosed = intern(c"_unclosed")?;
        names.accept_failed = intern(c"_accept_failed")?;
        names.accepted_keywords = tuple(&[c"extra", c"server"])?;
        names.call_at = intern(c"call_at")?;
        names.call_soon = intern(c"call_soon")?;
        names.call_soon_threadsafe = intern(c"call_soon_threadsafe")?;
        names.at_end = intern(c"_at_end")?;
        names.binary = intern(c"b")?;
        names.callback_failed = intern(c"_callback_failed")?;
        names.callback_raised = intern(c"_callback_raised")?;
        names.cancel = intern(c"cancel")?;
        names.close = intern(c"close")?;
        names.closed = intern(c"_closed")?;
        names.context = intern(c"context")?;
        names.create_future = intern(c"create_future")?;
        names.done = intern(c"done")?;
        names.ensure_no_transport = intern(c"_ensure_fd_no_transport")?;
        names.eof_received = intern(c"eof_received")?;
        names.fatal_error = intern(c"_fatal_error")?;
        names.fileno = intern(c"fileno")?;
        names.function = intern(c"__func__")?;
        names.get_timeout = intern(c"gettimeout")?;
        names.real_close = intern(c"_real_close")?;
        names.io_refs = intern(c"_io_refs")?;
        names.loop_ = intern(c"loop")?;
        names.loop_keyword = tuple(&[c"loop"])?;
        names.make_socket_transport = intern(c"_make_socket_transport")?;
        names.make_tls_transport = intern(c"_make_ssl_transport")?;
        names.mode = intern(c"mode")?;
        names.note_accepted = intern(c"_note_accepted")?;
        names.not_opened = intern(c"_not_opened")?;
        names.note_scheduled = intern(c"_note_scheduled")?;
        names.pause_protocol = intern(c"_pause_protocol")?;
        names.peername = intern(c"peername")?;
        names.receive_by_object = intern(c"_receive_by_object")?;
        names.resume_protocol = intern(c"_resume_protocol")?;
        names.retry_later = intern(c"_retry_later")?;
        names.run_in_debug = intern(c"_run_in_debug")?;
        names.send_by_object = intern(c"_send_by_object")?;
        names.sendfile_native = intern(c"_sendfile_native")?;
        names.set_exception = intern(c"set_exception")?;
        names.set_result = intern(c"set_result")?;
        names.sock_sendfile = intern(c"sock_sendfile")?;
        names.sock_sendfile_native = intern(c"_sock_sendfile_native")?;
        names.tell_slow = intern(c"_tell_slow")?;
        names.time = intern(c"time")?;
        names.tls_keywords =
            tuple(&[c"server_side", c"extra", c"server", c"ssl_handshake_timeout", c"ssl_shutdown_timeout"])?;
        Ok(())
    }
}

impl LoopModule {
    /// Makes the memory for handles, interns the names, and looks up the objects of asyncio and of the socket module.
    pub(crate) fn prepare(&mut self) -> Result<(), Raised> {
        self.spare = Box::into_raw(Box::default());
        self.names.fill()?;
        self.find_classes()
    }

    fn find_classes(&mut self) -> Result<(), Raised> {
        let state = self;
        let import = |name: &CStr| {
            // SAFETY: a C string.
            unsafe { Object::own(ffi::PyImport_ImportModule(name.as_ptr())) }
        };
        state.futures = import(c"asyncio.futures")?.into_ptr();
        state.tasks = import(c"asyncio.tasks")?.into_ptr();
        let class = import(c"socket")?.attribute(c"socket")?;
        state.socket_close = class.attribute(c"close")?.into_ptr();
        state.socket_real_close = class.attribute(c"_real_close")?.into_ptr();
        state.socket_class = class.into_ptr();
        let raw = import(c"_socket")?.attribute(c"socket")?;
        state.socket_family = raw.attribute(c"family")?.into_ptr();
        state.socket_kind = raw.attribute(c"type")?.into_ptr();
        state.socket_protocol = raw.attribute(c"proto")?.into_ptr();
        state.raw_close = raw.attribute(c"close")?.into_ptr();
        state.raw_socket = raw.into_ptr();
        // SAFETY: the thread is attached.
        state.closed_sockets = unsafe { Object::own(ffi::PyDict_New())? }.into_ptr();
        state.buffered_protocol = import(c"asyncio.protocols")?.attribute(c"BufferedProtocol")?.into_ptr();
        let streams = import(c"asyncio.streams")?;
        state.reader_protocol = streams.attribute(c"StreamReaderProtocol")?.into_ptr();
        let reader = streams.attribute(c"StreamReader")?;
        state.read = reader.attribute(c"read")?.into_ptr();
        state.read_exactly = reader.attribute(c"readexactly")?.into_ptr();
        state.reader_class = reader.into_ptr();
        let server = import(c"asyncio.base_events")?.attribute(c"Server")?;
        // SAFETY: a live class and C strings.
        state.servers_know_transports = unsafe {
            ffi::PyObject_HasAttrString(server.as_ptr(), c"close_clients".as_ptr()) != 0
                || ffi::PyObject_HasAttrString(server.as_ptr(), c"_clients".as_ptr()) != 0
        };
        state.incomplete_read = import(c"asyncio.exceptions")?.attribute(c"IncompleteReadError")?.into_ptr();
        let base = import(c"asyncio.selector_events")?.attribute(c"BaseSelectorEventLoop")?;
        state.accept_connection = base.attribute(c"_accept_connection")?.into_ptr();
        state.create_task = base.attribute(c"create_task")?.into_ptr();
        state.sock_recv = base.attribute(c"sock_recv")?.into_ptr();
        state.sock_recv_into = base.attribute(c"sock_recv_into")?.into_ptr();
        state.sock_sendall = base.attribute(c"sock_sendall")?.into_ptr();
        state.sock_sendto = base.attribute(c"sock_sendto")?.into_ptr();
        state.sock_recvfrom_into = base.attribute(c"sock_recvfrom_into")?.into_ptr();
        state.sock_recvfrom = base.attribute(c"sock_recvfrom")?.into_ptr();
        state.sock_connect = base.attribute(c"sock_connect")?.into_ptr();
        state.sock_accept = base.attribute(c"sock_accept")?.into_ptr();
        let base = import(c"asyncio")?.attribute(c"SelectorEventLoop")?;
        state.sock_sendfile = base.attribute(c"sock_sendfile")?.into_ptr();
        state.sendfile = base.attribute(c"sendfile")?.into_ptr();
        state.sock_sendfile_native = base.attribute(c"_sock_sendfile_native")?.into_ptr();
        state.sendfile_native = base.attribute(c"_sendfile_native")?.into_ptr();
        Ok(())
    }

    /// Every reference that the state owns, null or not.
    pub(crate) fn all_references(&mut self) -> impl Iterator<Item = &mut *mut ffi::PyObject> {
        // SAFETY: the layout is C's, and the structure begins with `OBJECTS` references.
        unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(self).cast(), OBJECTS) }.iter_mut()
    }

    /// Frees the memory for handles, before the types of which the memory was.
    pub(crate) fn free_spare(&mut self) {
        let spare = std::mem::replace(&mut self.spare, null_mut());
        if !spare.is_null() {
            // SAFETY: made in `prepare`, and taken once.
            unsafe { Box::from_raw(spare).free() };
        }
    }
}

/// The state of the module that a type was made for.
///
/// # Safety
///
/// `kind` is one of the module's own types.
#[cfg(not(Py_GIL_DISABLED))]
pub(crate) unsafe fn state_of<'a>(kind: *mut ffi::PyTypeObject) -> Option<&'a mut LoopModule> {
    // SAFETY: the caller's; once the module was cleared, it has no memory for handles.
    unsafe { MODULE.state_of(kind) }.filter(|state| !state.spare.is_null())
}
