//! A library that is loaded before the C library (`LD_PRELOAD`). It notes what the process does to the files of one
//! folder, in order, and has some of it fail. `disk.py` builds and drives it.
//!
//! A note is a kind, a file's number, an offset or size, and bytes. Calls on other files pass through.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::sync::Mutex;

const EIO: c_int = 5;
const ENOSPC: c_int = 28;
const EOPNOTSUPP: c_int = 95;
const O_CREAT: c_int = 0o100;
const RTLD_NEXT: *mut c_void = -1_isize as *mut c_void;
/// The number that stands for the folder itself.
const FOLDER: u32 = 0;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn __errno_location() -> *mut c_int;
    fn lseek64(file: c_int, offset: i64, whence: c_int) -> i64;
    fn readlink(path: *const c_char, to: *mut c_char, size: usize) -> isize;
}

/// What the program has called; a step is one of these that changes what is on the disk.
struct Notes {
    /// With a slash at its end; empty while nothing is noted.
    folder: Vec<u8>,
    log: Vec<u8>,
    /// The files' numbers, by their names.
    files: HashMap<Vec<u8>, u32>,
    next: u32,
    steps: u64,
    plan: Plan,
    chance: u64,
}

/// What goes wrong.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Plan {
    /// This step reports an error of the disk; 0 for none.
    fail_at: u64,
    /// No file can be larger; 0 for no bound.
    capacity: u64,
    /// Writes take only a part of what they are given.
    short: u8,
    /// No room can be taken ahead.
    bare: u8,
}

static NOTES: Mutex<Option<Notes>> = Mutex::new(None);
/// Called before each write and sync, outside of the lock.
static HOOK: Mutex<Option<extern "C" fn()>> = Mutex::new(None);

thread_local!(static IS_WITHIN: Cell<bool> = const { Cell::new(false) });

macro_rules! next {
    ($name:literal, $type:ty) => {{
        // SAFETY: a C string; the C library has a function of that name and type.
        unsafe { transmute::<*mut c_void, $type>(dlsym(RTLD_NEXT, $name.as_ptr())) }
    }};
}

impl Notes {
    fn note(&mut self, kind: u8, file: u32, at: u64, bytes: &[u8]) {
        self.log.push(kind);
        self.log.extend(file.to_le_bytes());
        self.log.extend(at.to_le_bytes());
        self.log.extend((bytes.len() as u32).to_le_bytes());
        self.log.extend(bytes);
    }

    /// Whether the next step fails.
    fn step(&mut self) -> bool {
        self.steps += 1;
        self.steps == self.plan.fail_at
    }

    /// A number below the limit (xorshift).
    fn below(&mut self, limit: usize) -> usize {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        (self.chance % limit as u64) as usize
    }

    fn name<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        if self.folder.is_empty() { None } else { path.strip_prefix(&self.folder[..]) }
    }
}

fn fail(error: c_int) -> c_int {
    // SAFETY: the thread's own number.
    unsafe { *__errno_location() = error };
    -1
}

/// Calls `act` with the notes and the number of this open file, if it is one of the folder's.
fn with_file<R>(file: c_int, is_hooked: bool, act: impl FnOnce(&mut Notes, u32) -> R) -> Option<R> {
    if NOTES.lock().unwrap().as_ref().is_none_or(|notes| notes.folder.is_empty()) {
        return None;
    }
    let mut path = [0; 4096];
    let link = format!("/proc/self/fd/{file}\0");
    // SAFETY: a C string, and room of that size.
    let size = unsafe { readlink(link.as_ptr().cast(), path.as_mut_ptr().cast(), path.len()) };
    let path = &path[..usize::try_from(size).ok()?];
    let number = |notes: &Notes, path: &[u8]| match notes.name(path) {
        Some(name) => notes.files.get(name).copied(),
        None => (notes.folder.strip_suffix(b"/") == Some(path)).then_some(FOLDER),
    };
    number(NOTES.lock().unwrap().as_ref()?, path)?;
    let hook = *HOOK.lock().unwrap();
    if let Some(hook) = hook.filter(|_| is_hooked && !IS_WITHIN.get()) {
        IS_WITHIN.set(true);
        hook();
        IS_WITHIN.set(false);
    }
    let mut notes = NOTES.lock().unwrap();
    let notes = notes.as_mut()?;
    let number = number(notes, path)?;
    Some(act(notes, number))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: u32) -> c_int {
    let open = next!(c"open64", unsafe extern "C" fn(*const c_char, c_int, u32) -> c_int);
    // SAFETY: the caller's.
    let text = unsafe { CStr::from_ptr(path) };
    let mut notes = NOTES.lock().unwrap();
    if let Some(notes) = notes.as_mut()
        && let Some(name) = notes.name(text.to_bytes())
    {
        let name = name.to_vec();
        if !notes.files.contains_key(&name) && flags & O_CREAT != 0 {
            if notes.step() {
                return fail(EIO);
            }
            let number = notes.next;
            notes.next += 1;
            notes.note(b'c', number, 0, &name);
            notes.files.insert(name, number);
        }
    }
    // SAFETY: the caller's.
    unsafe { open(path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(file: c_int, bytes: *const c_void, count: usize, offset: i64) -> isize {
    let write = next!(c"pwrite64", unsafe extern "C" fn(c_int, *const c_void, usize, i64) -> isize);
    let noted = with_file(file, true, |notes, number| {
        let fails = notes.step();
        let mut count = count;
        if notes.plan.short != 0 && count > 1 {
            count = 1 + notes.below(count);
        }
        if fails {
            // What a write that fails has written, it may have written.
            count = notes.below(count + 1);
        }
        if notes.plan.capacity != 0 && offset as u64 + count as u64 > notes.plan.capacity {
            // SAFETY: an open file; its position is that of no call here.
            let size = unsafe { lseek64(file, 0, 2) };
            if offset + count as i64 > size {
                return fail(if fails { EIO } else { ENOSPC }) as isize;
            }
        }
        // SAFETY: the caller's; `count` has only become smaller.
        let written = unsafe { write(file, bytes, count, offset) };
        if written > 0 {
            // SAFETY: so many bytes were read from there.
            let bytes = unsafe { std::slice::from_raw_parts(bytes.cast(), written as usize) };
            notes.note(b'w', number, offset as u64, bytes);
        }
        if fails { fail(EIO) as isize } else { written }
    });
    // SAFETY: the caller's.
    noted.unwrap_or_else(|| unsafe { write(file, bytes, count, offset) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate64(file: c_int, size: i64) -> c_int {
    let cut = next!(c"ftruncate64", unsafe extern "C" fn(c_int, i64) -> c_int);
    let noted = with_file(file, false, |notes, number| {
        if notes.step() {
            return fail(EIO);
        }
        notes.note(b't', number, size as u64, b"");
        // SAFETY: the caller's.
        unsafe { cut(file, size) }
    });
    // SAFETY: the caller's.
    noted.unwrap_or_else(|| unsafe { cut(file, size) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fallocate(file: c_int, mode: c_int, offset: i64, count: i64) -> c_int {
    let take = next!(c"fallocate", unsafe extern "C" fn(c_int, c_int, i64, i64) -> c_int);
    let noted = with_file(file, false, |notes, number| {
        let end = (offset + count) as u64;
        if notes.step() {
            return fail(EIO);
        }
        if notes.plan.bare != 0 {
            return fail(EOPNOTSUPP);
        }
        if notes.plan.capacity != 0 && end > notes.plan.capacity {
            return fail(ENOSPC);
        }
        notes.note(b'a', number, end, b"");
        // SAFETY: the caller's.
        unsafe { take(file, mode, offset, count) }
    });
    // SAFETY: the caller's.
    noted.unwrap_or_else(|| unsafe { take(file, mode, offset, count) })
}

/// A sync waits for nothing: what is on the disk follows from the notes.
fn synced(file: c_int) -> Option<c_int> {
    with_file(file, true, |notes, number| {
        if notes.step() {
            return fail(EIO);
        }
        notes.note(b's', number, 0, b"");
        0
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(file: c_int) -> c_int {
    let sync = next!(c"fdatasync", unsafe extern "C" fn(c_int) -> c_int);
    // SAFETY: the caller's.
    synced(file).unwrap_or_else(|| unsafe { sync(file) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(file: c_int) -> c_int {
    let sync = next!(c"fsync", unsafe extern "C" fn(c_int) -> c_int);
    // SAFETY: the caller's.
    synced(file).unwrap_or_else(|| unsafe { sync(file) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    let rename = next!(c"rename", unsafe extern "C" fn(*const c_char, *const c_char) -> c_int);
    // SAFETY: the caller's.
    let (source, target) = unsafe { (CStr::from_ptr(from), CStr::from_ptr(to)) };
    let mut notes = NOTES.lock().unwrap();
    if let Some(notes) = notes.as_mut()
        && let (Some(source), Some(target)) = (notes.name(source.to_bytes()), notes.name(target.to_bytes()))
    {
        if notes.step() {
            return fail(EIO);
        }
        if let Some(number) = notes.files.remove(source) {
            notes.files.insert(target.to_vec(), number);
            notes.note(b'r', number, source.len() as u64, &[source, target].concat());
        }
    }
    // SAFETY: the caller's.
    unsafe { rename(from, to) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    let unlink = next!(c"unlink", unsafe extern "C" fn(*const c_char) -> c_int);
    // SAFETY: the caller's.
    let text = unsafe { CStr::from_ptr(path) };
    let mut notes = NOTES.lock().unwrap();
    if let Some(notes) = notes.as_mut()
        && let Some(name) = notes.name(text.to_bytes())
    {
        if notes.step() {
            return fail(EIO);
        }
        if let Some(number) = notes.files.remove(name) {
            notes.note(b'u', number, 0, name);
        }
    }
    // SAFETY: the caller's.
    unsafe { unlink(path) }
}

/// Begins to note what is done in a folder that is empty, or has this one file, whose number is then 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recorder_begin(
    folder: *const c_char,
    file: *const c_char,
    plan: Plan,
    chance: u64,
    hook: Option<extern "C" fn()>,
) {
    // SAFETY: C strings of the caller.
    let (folder, file) = unsafe { (CStr::from_ptr(folder).to_bytes(), CStr::from_ptr(file).to_bytes()) };
    let mut files = HashMap::new();
    if !file.is_empty() {
        files.insert(file.to_vec(), 1);
    }
    *HOOK.lock().unwrap() = hook;
    let folder = folder.to_vec();
    let notes = Notes { folder, log: Vec::new(), files, next: 2, steps: 0, plan, chance: chance | 1 };
    *NOTES.lock().unwrap() = Some(notes);
}

/// Notes something of the program's own.
#[unsafe(no_mangle)]
pub extern "C" fn recorder_mark(kind: u32, number: u64) {
    if let Some(notes) = NOTES.lock().unwrap().as_mut() {
        notes.note(b'm', kind, number, b"");
    }
}

/// Ends the notes; they stay where they are until the next ones begin. Gives their size, and the number of steps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recorder_end(log: *mut *const u8, steps: *mut u64) -> usize {
    *HOOK.lock().unwrap() = None;
    let mut notes = NOTES.lock().unwrap();
    let Some(notes) = notes.as_mut() else { return 0 };
    notes.folder.clear();
    // SAFETY: the caller's places.
    unsafe { (*log, *steps) = (notes.log.as_ptr(), notes.steps) };
    notes.log.len()
}
